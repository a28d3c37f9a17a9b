// Which blocks go? Gaps are sorted [first, last] pairs, inclusive, never touching one another. Nothing here draws.
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const countOf = (gaps) => gaps.reduce((sum, [first, last]) => sum + last - first + 1, 0);
const gapAt = (gaps, block) => gaps.findIndex(([first, last]) => block >= first && block <= last);
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// Gaps that touch or overlap are one gap.
function merged(gaps) {
  const found = [];
  for (const [first, last] of [...gaps].sort((a, b) => a[0] - b[0])) {
    const before = found.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else found.push([first, last]);
  }
  return found;
}

// The gaps with one more, as {gaps, active}. One block must survive: else the new gap gives way at the end that is not
// `anchor`, and where even one block of it is too many there is no such choice: null.
function withGap(others, first, last, blocks, anchor = first) {
  for (;;) {
    const gaps = merged([...others, [first, last]]);
    if (countOf(gaps) < blocks) return { gaps, active: gapAt(gaps, anchor) };
    if (first === last) return null;
    if (anchor === last) first += 1; else last -= 1;
  }
}

// The gaps after one block is put back.
function without(gaps, block) {
  const left = gaps.flatMap(([first, last]) => (block < first || block > last ? [[first, last]]
    : [[first, block - 1], [block + 1, last]].filter(([a, b]) => a <= b)));
  const next = left.findIndex(([, last]) => last >= block);
  return { gaps: left, active: next < 0 ? Math.max(left.length - 1, 0) : next };
}

// The first block that no gap holds or touches; null where there is none.
function freePlace(gaps, blocks) {
  for (let block = 0; block < blocks; block++) {
    if (gaps.every(([first, last]) => block < first - 1 || block > last + 1)) return block;
  }
  return null;
}

function nameOf(gaps) {
  return gaps.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

function describe(gaps, blocks) {
  const n = countOf(gaps);
  if (!n) return say("map.removes_nothing", { all: blocks });
  return say(n === 1 ? "map.removes_one" : "map.removes", { blocks: nameOf(gaps), count: n, all: blocks });
}

// Three significant digits, as analysis/numbers.py writes them.
function three(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3)))));
  if (size < -4) return value.toExponential(2);
  const rounded = Number(value.toPrecision(3));
  return rounded.toLocaleString("en", { minimumFractionDigits: Math.max(2 - size, 0), maximumFractionDigits: 8 });
}
