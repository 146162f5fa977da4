// Numbers and times as people read them; the same digits as `pyserve top`.

const NOTHING = "–";

/** A number in at most three digits that mean something. */
export function number(value) {
  if (value === null || value === undefined) {
    return NOTHING;
  }
  if (value === 0) {
    return "0";
  }
  if (Math.abs(value) >= 1000) {
    return Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  }
  return String(Number(value.toPrecision(3)));
}

/** A time in seconds with its unit. */
export function duration(value) {
  if (value === null || value === undefined) {
    return NOTHING;
  }
  if (value >= 1) {
    return `${number(value)} s`;
  }
  return value >= 1e-3 ? `${number(value * 1e3)} ms` : `${number(value * 1e6)} µs`;
}

export function percent(share) {
  return share === null || share === undefined ? NOTHING
    : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) {
    return NOTHING;
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${number(bytes / 1024 ** step)} ${units[step]}`;
}

/** A moment, Unix time in seconds, as a clock has it; with the day if it is not today. */
export function clock(unix) {
  if (!unix) {
    return NOTHING;
  }
  const at = new Date(unix * 1000);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time
    : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

function two(part) {
  return String(part).padStart(2, "0");
}
