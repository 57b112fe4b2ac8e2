// Numbers of a chart, without drawing: ranges, ticks, smoothing, what is nearest.

export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!Number.isFinite(low)) return [0, 1];
  if (low === high) return [low - (Math.abs(low) || 1) * 0.05, high + (Math.abs(high) || 1) * 0.05];
  return [low, high];
}

// Return about `most` round numbers within a range.
export function ticks([low, high], most) {
  const raw = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= raw * 0.75);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) found.push(Number((n * step).toPrecision(12)));
  return found;
}

// The same for bytes: round in the unit that fits.
export function byteTicks([low, high], most) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, high)) / Math.log(1024)));
  return ticks([low / unit, high / unit], most).map((value) => value * unit);
}

// The same for seconds: round on a clock.
export function clockTicks([low, high], most) {
  const raw = (high - low) / Math.max(1, most);
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200].find((size) => size >= raw * 0.75) ?? 86400;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}

export function logTicks([low, high], most) {
  const [from, to] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (to - from < 1) return ticks([low, high], most).filter((value) => value > 0);
  const step = Math.max(1, Math.ceil((to - from) / most));
  const found = [];
  for (let n = from; n <= to; n += step) found.push(10 ** n);
  return found;
}

// An average that follows the values, from 0 (the values) to near 1 (a flat line). What
// it begins with does not count: the first values are not pulled towards zero.
export function smoothed(points, strength) {
  if (!strength) return points;
  let [mean, weight] = [0, 0];
  return points.map(([x, y]) => {
    mean = strength * mean + (1 - strength) * y;
    weight = strength * weight + (1 - strength);
    return [x, mean / weight];
  });
}

// Return the place of the point that is nearest to x; the points are in order of x.
export function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - points[low - 1][0] <= points[low][0] - x ? low - 1 : low;
}

// Return the points within a range, and one more on each side, so that lines go on.
export function within(points, [low, high]) {
  const first = points.findIndex(([x]) => x >= low);
  if (first < 0) return points.slice(-1);
  let last = points.length;
  while (last > first && points[last - 1][0] > high) last -= 1;
  return points.slice(Math.max(0, first - 1), last + 1);
}

// Return a range that is narrower or wider by a factor around a place of it.
export function zoomed([low, high], around, factor, [least, most]) {
  const from = Math.max(least, around - (around - low) * factor);
  const to = Math.min(most, around + (high - around) * factor);
  return to - from > (most - least) * 1e-6 ? [from, to] : [low, high];
}
