// Places for the nodes of a graph: callers to the left of what they call. Pure.

export const BOX = { width: 168, height: 44 };
const PORT = 30;
const GAP = { x: 178, y: 22 };
const MARGIN = 12;
// The last part of a line is straight, and has its label above it.
const STRAIGHT = 128;

/**
 * Places nodes and lines. Edges that pass by columns keep a place free there, so that no line runs
 * below a box; each line arrives at a port of its own, where its label has room.
 */
export function layout(targets, edges) {
  const names = [...new Set([...edges.map((edge) => edge.from), ...targets])].toSorted();
  const columns = columnsOf(names, edges);
  const nodes = new Map(names.map((name) => [name, {
    name, column: columns.get(name), arrivals: edges.filter((edge) => edge.to === name).length,
  }]));
  const lines = edges.map((edge) => ({ edge, way: wayOf(edge, nodes) }));
  stack(nodes, lines);
  const boxes = names.map((name) => nodes.get(name));
  return {
    boxes,
    lines: drawn(lines),
    width: Math.max(0, ...boxes.map((box) => box.x + BOX.width)) + MARGIN,
    height: Math.max(0, ...[...nodes.values()].map((node) => node.y + node.height)) + MARGIN,
  };
}

/** The longest way to each node, cycles aside; what is not called from outside begins at 1. */
function columnsOf(names, edges) {
  const columns = new Map();
  const visit = (name, way) => {
    if (!columns.has(name)) {
      const callers = edges.filter((edge) => edge.to === name && edge.from !== name
        && !way.has(edge.from));
      const before = callers.map((edge) => visit(edge.from, new Set([...way, name])) + 1);
      columns.set(name, Math.max(name.includes("/") ? 1 : 0, ...before));
    }
    return columns.get(name);
  };
  names.forEach((name) => visit(name, new Set()));
  return columns;
}

/** The nodes that an edge runs through: its ends, and a place in each column between them. */
function wayOf(edge, nodes) {
  const from = nodes.get(edge.from);
  const to = nodes.get(edge.to);
  const way = [from];
  for (let column = from.column + 1; column < to.column; column += 1) {
    const name = `${edge.from} ${edge.to} ${column}`;
    nodes.set(name, { name, column, arrivals: 0, isPassage: true });
    way.push(nodes.get(name));
  }
  return [...way, to];
}

/** Puts the nodes of each column below each other, in the order of what leads to them. */
function stack(nodes, lines) {
  const last = Math.max(0, ...[...nodes.values()].map((node) => node.column));
  for (let column = 0; column <= last; column += 1) {
    const found = [...nodes.values()].filter((node) => node.column === column);
    for (const node of found) {
      const before = lines.flatMap(({ way }) => way.flatMap((each, place) =>
        each === node && place > 0 && way[place - 1].column < column ? [middle(way[place - 1])] : []));
      node.weight = before.length === 0 ? Infinity
        : before.reduce((sum, y) => sum + y, 0) / before.length;
    }
    let y = MARGIN;
    for (const node of found.toSorted((one, other) => one.weight - other.weight
      || one.name.localeCompare(other.name))) {
      const height = node.isPassage ? PORT : Math.max(BOX.height, (node.arrivals + 0.5) * PORT);
      Object.assign(node, { x: MARGIN + column * (BOX.width + GAP.x), y, height });
      y += height + GAP.y;
    }
  }
}

function drawn(lines) {
  const taken = new Map();
  const ordered = lines.toSorted((one, other) => middle(one.way.at(-2)) - middle(other.way.at(-2)));
  return ordered.map(({ edge, way }) => {
    const to = way.at(-1);
    const port = taken.get(to) ?? 0;
    taken.set(to, port + 1);
    const free = (to.height - to.arrivals * PORT) / 2;
    const end = { x: to.x, y: to.y + free + (port + 0.5) * PORT };
    return { edge, path: pathOf(way, end), end };
  });
}

function pathOf(way, end) {
  let at = { x: way[0].x + BOX.width, y: middle(way[0]) };
  let path = `M${at.x},${at.y}`;
  for (const node of way.slice(1)) {
    const isLast = node === way.at(-1);
    const next = isLast ? end : { x: node.x, y: middle(node) };
    const curveEnd = next.x - (isLast ? STRAIGHT : 0);
    const bend = Math.max(24, Math.abs(curveEnd - at.x) / 2);
    path += ` C${at.x + bend},${at.y} ${curveEnd - bend},${next.y} ${curveEnd},${next.y}`;
    if (isLast) {
      path += ` H${next.x}`;
    } else {
      at = { x: node.x + BOX.width, y: next.y };
      path += ` H${at.x}`;
    }
  }
  return path;
}

function middle(node) {
  return node.y + node.height / 2;
}
