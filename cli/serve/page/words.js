'use strict';
// Numbers as people read them. What nobody knows is a dash.
const Words = (() => {
  const kUnknown = '–';
  const known = (value) => typeof value === 'number' && Number.isFinite(value);
  const grouped = (value) => known(value) ? Math.round(value).toLocaleString('en') : kUnknown;
  const fixed = (value, digits) => known(value) ? value.toFixed(digits) : kUnknown;

  // 1234567 -> "1.23 M"
  function compact(value, digits = 3) {
    if (!known(value)) return kUnknown;
    for (const [size, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']])
      if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(digits))} ${letter}`;
    return String(Number(value.toPrecision(digits)));
  }
  // 3725 -> "1 h 2 min"
  function duration(seconds) {
    if (!known(seconds) || seconds < 0) return kUnknown;
    const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
    const at = units.findIndex(([, size]) => seconds >= size);
    if (at < 0) return `${Number(seconds.toPrecision(2))} s`;
    const whole = (i) => Math.floor((i === 0 ? seconds : seconds % units[i - 1][1]) / units[i][1]);
    const parts = [`${whole(at)} ${units[at][0]}`];
    if (at < 3 && whole(at + 1) > 0) parts.push(`${whole(at + 1)} ${units[at + 1][0]}`);
    return parts.join(' ');
  }
  // For an axis or a tooltip, whatever the size.
  function plain(value) {
    if (!known(value)) return kUnknown;
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace('e', ' e');
    return value.toLocaleString('en', {maximumSignificantDigits: 5});
  }
  // 0.0213 -> "21.3 ms"
  function seconds(value) {
    if (!known(value) || value < 0) return kUnknown;
    const [size, unit] = value < 0.1 ? [1e-3, 'ms'] : [1, 's'];
    return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  function size(bytes) {
    if (!known(bytes) || bytes <= 0) return kUnknown;
    const [unit, name] = bytes >= 2 ** 30 ? [2 ** 30, 'GiB'] : [2 ** 20, 'MiB'];
    return `${Number((bytes / unit).toPrecision(3))} ${name}`;
  }
  const time = (unix_s) => known(unix_s) && unix_s > 0
      ? new Date(unix_s * 1000).toLocaleString('en-GB', {dateStyle: 'short', timeStyle: 'medium'})
      : kUnknown;

  return {kUnknown, known, grouped, fixed, compact, duration, plain, seconds, size, time};
})();
