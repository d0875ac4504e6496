// A small line chart over the last minutes: axes with units, a legend that reads out the values under the
// pointer (or the arrow keys), and the same figures as a table.
//
//   const chart = new LineChart({title: 'Throughput', unit: 'tokens/s',
//     series: [{name: 'Generation', value: (sample) => sample.generation_tokens_per_s}]});
//   grid.append(chart.node);
//   chart.show(samples, now);      // samples: [{t: unix seconds, ...}], value() may give null: a gap

import {el, svg} from './dom.js';

const kHeight = 190;
const kMargin = {top: 10, right: 12, bottom: 26, left: 46};
const kTableStepSeconds = 15;
// How far back a plot reaches and how far apart its times stand: as short as holds all that was measured, so
// that a server that has just started shows more than a thin strip.
const kSpans = [{seconds: 60, step: 15}, {seconds: 120, step: 30}, {seconds: 300, step: 60}];
const kTimeLabelWidth = 72;

export class LineChart {
  constructor({title, unit, series, max = null, format = formatNumber}) {
    Object.assign(this, {title, unit, series, max, format, span: kSpans[0]});
    this.samples = [];
    this.now = 0;
    this.cursor = null;  // index of the sample that is read out
    this.plot = svg('svg', {class: 'plot', role: 'img', tabindex: '0'});
    this.values = series.map(() => el('span', {class: 'value'}, '–'));
    this.when = el('span', {class: 'when', 'aria-live': 'polite'});
    this.table = el('div', {class: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': `${title}, table`});
    this.details = el('details', {class: 'as-table'}, el('summary', {}, 'Table'), this.table);
    this.node = el('figure', {class: 'chart'},
      el('figcaption', {}, el('h3', {}, title), el('span', {class: 'unit'}, unit), this.when),
      this.#legend(), this.plot, this.details);
    this.#connect();
  }

  show(samples, now) {
    // The cursor stays on its moment while the samples move on.
    const at = this.cursor === null ? null : this.samples[this.cursor]?.t;
    this.samples = samples;
    this.now = now;
    this.span = kSpans.find(({seconds}) => now - (samples[0]?.t ?? now) <= seconds) ?? kSpans.at(-1);
    if (at !== null) {
      const index = samples.findIndex((sample) => sample.t >= at);
      this.cursor = index < 0 ? null : index;
    }
    this.#draw();
  }

  #legend() {
    const keys = this.series.map(({name}, i) =>
      el('span', {class: `key s${i}`},
        svg('svg', {class: 'swatch', viewBox: '0 0 22 8', 'aria-hidden': 'true'}, svg('path', {class: `line s${i}`, d: 'M1 4h20'})),
        name, this.values[i]));
    return el('div', {class: 'legend'}, ...keys);
  }

  #connect() {
    new ResizeObserver(() => this.#draw()).observe(this.plot);
    this.plot.addEventListener('pointermove', (event) => this.#moveTo(this.#indexAt(event)));
    this.plot.addEventListener('pointerdown', (event) => this.#moveTo(this.#indexAt(event)));
    this.plot.addEventListener('pointerleave', () => this.#moveTo(null));
    this.plot.addEventListener('blur', () => this.#moveTo(null));
    this.plot.addEventListener('keydown', (event) => {
      const last = this.samples.length - 1;
      const now = this.cursor ?? last;
      const moves = {ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - 10, PageDown: now + 10, Home: 0, End: last};
      if (!(event.key in moves) || last < 0) return;
      event.preventDefault();
      this.#moveTo(Math.max(0, Math.min(last, moves[event.key])));
    });
    this.details.addEventListener('toggle', () => this.#showTable());
  }

  #indexAt(event) {
    if (!this.samples.length) return null;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const t = this.now + ((x - kMargin.left) / this.innerWidth - 1) * this.span.seconds;
    let best = 0;
    this.samples.forEach((sample, i) => {
      if (Math.abs(sample.t - t) < Math.abs(this.samples[best].t - t)) best = i;
    });
    return best;
  }

  #moveTo(index) {
    if (index === this.cursor) return;
    this.cursor = index;
    this.#draw();
  }

  #draw() {
    const width = this.plot.clientWidth;
    if (!width) return;  // the view is hidden
    this.innerWidth = width - kMargin.left - kMargin.right;
    const top = this.#axisTop();
    const x = (t) => kMargin.left + (1 - (this.now - t) / this.span.seconds) * this.innerWidth;
    const y = (value) => kMargin.top + (1 - Math.min(value, top.max) / top.max) * (kHeight - kMargin.top - kMargin.bottom);
    this.plot.setAttribute('viewBox', `0 0 ${width} ${kHeight}`);
    this.plot.replaceChildren(...this.#grid(top, y, width), ...this.#timeAxis(x), ...this.#lines(x, y), ...this.#cursorMarks(x, y));
    if (!this.samples.length) {
      this.plot.append(svg('text', {class: 'empty', x: kMargin.left + this.innerWidth / 2, y: kHeight / 2 - 6, 'text-anchor': 'middle'}, 'No data yet'));
    }
    this.#readOut();
    if (this.details.open) this.#showTable();
  }

  #axisTop() {
    if (this.max !== null) return {max: this.max, step: this.max / 4};
    let highest = 0;
    for (const sample of this.samples) {
      for (const {value} of this.series) highest = Math.max(highest, value(sample) ?? 0);
    }
    return niceScale(highest);
  }

  #grid({max, step}, y, width) {
    const nodes = [];
    for (let value = 0; value <= max * 1.0001; value += step) {
      nodes.push(svg('line', {class: value === 0 ? 'axis' : 'grid', x1: kMargin.left, x2: width - kMargin.right, y1: y(value), y2: y(value)}));
      nodes.push(svg('text', {class: 'tick', x: kMargin.left - 8, y: y(value) + 4, 'text-anchor': 'end'}, this.format(value)));
    }
    return nodes;
  }

  #timeAxis(x) {
    const {seconds, step} = this.span;
    const stride = this.innerWidth * step / seconds < kTimeLabelWidth ? 2 * step : step;
    const nodes = [];
    for (let ago = 0; ago <= seconds; ago += stride) {
      const at = x(this.now - ago);
      const label = ago === 0 ? 'now' : seconds > 120 ? `−${ago / 60} min` : `−${ago} s`;
      const anchor = ago === 0 ? 'end' : ago === seconds ? 'start' : 'middle';
      nodes.push(svg('line', {class: 'axis', x1: at, x2: at, y1: kHeight - kMargin.bottom, y2: kHeight - kMargin.bottom + 4}));
      nodes.push(svg('text', {class: 'tick', x: at, y: kHeight - 6, 'text-anchor': anchor}, label));
    }
    return nodes;
  }

  #lines(x, y) {
    const nodes = [];
    this.series.forEach(({value}, i) => {
      const runs = this.#runs(value);
      if (i === 0) {
        for (const run of runs.filter((points) => points.length > 1)) {
          const edge = run.map((p) => `${round(x(p.t))},${round(y(p.value))}`).join('L');
          nodes.unshift(svg('path', {class: 'area s0', d: `M${round(x(run[0].t))},${y(0)}L${edge}L${round(x(run.at(-1).t))},${y(0)}Z`}));
        }
      }
      for (const run of runs) {
        if (run.length === 1) nodes.push(svg('circle', {class: `dot s${i}`, cx: round(x(run[0].t)), cy: round(y(run[0].value)), r: 1.8}));
        else nodes.push(svg('path', {class: `line s${i}`, d: `M${run.map((p) => `${round(x(p.t))},${round(y(p.value))}`).join('L')}`}));
      }
    });
    return nodes;
  }

  // Stretches without a missing value or a pause between samples.
  #runs(value) {
    const runs = [];
    let run = [];
    let before = null;
    for (const sample of this.samples) {
      const now = value(sample) ?? null;
      if (run.length && (now === null || sample.t - before > 5)) {
        runs.push(run);
        run = [];
      }
      if (now !== null && sample.t >= this.now - this.span.seconds) run.push({t: sample.t, value: now});
      before = sample.t;
    }
    if (run.length) runs.push(run);
    return runs;
  }

  #cursorMarks(x, y) {
    const sample = this.samples[this.cursor ?? -1];
    if (!sample) return [];
    const at = x(sample.t);
    const dots = this.series.map(({value}, i) => {
      const now = value(sample);
      return now === null || now === undefined ? null : svg('circle', {class: `mark s${i}`, cx: at, cy: y(now), r: 3.5});
    });
    return [svg('line', {class: 'cursor', x1: at, x2: at, y1: kMargin.top, y2: kHeight - kMargin.bottom}), ...dots.filter(Boolean)];
  }

  #readOut() {
    const sample = this.samples[this.cursor ?? this.samples.length - 1];
    const text = (value) => (value === null || value === undefined ? '–' : this.format(value));
    this.series.forEach(({value}, i) => (this.values[i].textContent = sample ? text(value(sample)) : '–'));
    this.when.textContent = this.cursor === null || !sample ? '' : clockTime(sample.t);
    const figures = sample ? this.series.map(({name, value}) => `${name} ${text(value(sample))}`).join(', ') : 'no data yet';
    this.plot.setAttribute('aria-label', `${this.title} in ${this.unit} over the last ${this.span.seconds} seconds. Latest: ${figures}. Arrow keys read out earlier values.`);
  }

  #showTable() {
    if (!this.details.open) return;
    const rows = [];
    let next = Infinity;
    for (const sample of this.samples.toReversed()) {
      if (sample.t > next) continue;
      next = sample.t - kTableStepSeconds + 0.5;
      rows.push(el('tr', {}, el('th', {scope: 'row'}, clockTime(sample.t)),
        ...this.series.map(({value}) => el('td', {}, value(sample) === null || value(sample) === undefined ? '–' : this.format(value(sample))))));
    }
    this.table.replaceChildren(el('table', {},
      el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'Time'), ...this.series.map(({name}) => el('th', {scope: 'col'}, `${name}, ${this.unit}`)))),
      el('tbody', {}, ...rows)));
  }
}

// At most five steps of 1, 2, 2.5 or 5 times a power of ten that reach over the highest value.
function niceScale(highest) {
  if (highest <= 0) return {max: 4, step: 1};
  const rough = highest * 1.04 / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
  return {max: Math.ceil(highest * 1.04 / step) * step, step};
}

export function formatNumber(value) {
  if (value === 0) return '0';
  if (value >= 1e6) return `${trim(value / 1e6)}M`;
  if (value >= 1e4) return `${trim(value / 1e3)}k`;
  if (value >= 100) return Math.round(value).toLocaleString('en');
  return trim(value);
}

const trim = (value) => String(Number(value.toFixed(value < 10 ? 2 : 1)));
const round = (value) => Math.round(value * 10) / 10;
const clockTime = (t) => new Date(t * 1000).toLocaleTimeString([], {hour12: false});
