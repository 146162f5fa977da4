// Makes a part of the document what it shall be and leaves alone what already is, so that focus,
// selections and what somebody types survive every update. Text is only ever text: no HTML is parsed.

const SVG = "http://www.w3.org/2000/svg";
const KEY = Symbol("key");

/** Describes an element; `key` among its attributes finds it again when its place has changed. */
export function h(tag, attributes, ...children) {
  return { tag, attributes: attributes ?? {}, children };
}

/** Makes `children` the content of `parent`. */
export function patch(parent, children) {
  const focused = document.activeElement;
  fill(parent, children);
  // An element that has been moved has lost it.
  if (focused !== document.activeElement && focused?.isConnected) {
    focused.focus({ preventScroll: true });
  }
}

function fill(parent, children) {
  const known = new Map();
  for (const node of parent.childNodes) {
    if (node[KEY] !== undefined) {
      known.set(node[KEY], node);
    }
  }
  let place = parent.firstChild;
  for (const child of flat(children)) {
    const node = found(place, known, child) ?? made(child, parent);
    if (node === place) {
      place = place.nextSibling;
    } else {
      parent.insertBefore(node, place);
    }
    update(node, child);
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function flat(children) {
  return [children].flat(Infinity).filter((child) => child !== null && child !== undefined
    && child !== false);
}

function found(place, known, child) {
  const key = child.attributes?.key;
  if (key !== undefined) {
    return known.get(key);
  }
  if (place === null || place[KEY] !== undefined) {
    return undefined;
  }
  const fits = child.tag === undefined
    ? place.nodeType === Node.TEXT_NODE
    : place.nodeType === Node.ELEMENT_NODE && place.localName === child.tag;
  return fits ? place : undefined;
}

function made(child, parent) {
  if (child.tag === undefined) {
    return document.createTextNode("");
  }
  const space = child.tag === "svg" || parent.namespaceURI === SVG ? SVG : null;
  const node = space === null ? document.createElement(child.tag)
    : document.createElementNS(space, child.tag);
  if (child.attributes.key !== undefined) {
    node[KEY] = child.attributes.key;
  }
  return node;
}

function update(node, child) {
  if (child.tag === undefined) {
    const text = String(child);
    if (node.data !== text) {
      node.data = text;
    }
    return;
  }
  const wanted = new Set();
  for (const [name, value] of Object.entries(child.attributes)) {
    if (name === "key" || value === null || value === undefined || value === false) {
      continue;
    }
    if (name.startsWith("on")) {
      node[name] = value;
      continue;
    }
    wanted.add(name);
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) {
      node.setAttribute(name, text);
    }
  }
  for (const name of node.getAttributeNames()) {
    if (!wanted.has(name)) {
      node.removeAttribute(name);
    }
  }
  fill(node, child.children);
}
