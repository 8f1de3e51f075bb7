'use strict';
// Charts by Chart.js: curves of several runs over one axis, which all zoom together, and where a
// step goes.
const Charts = (() => {
  // Told apart by colour-blind people too (after Okabe and Ito), each for light and dark ground. The
  // next eight runs have the same colours with dashes.
  const kColors = [
    ['#0868ac', '#5fb0ff'], ['#d4500b', '#ff9557'], ['#008a63', '#3fd3a0'], ['#b5468f', '#f29bd2'],
    ['#7a5af0', '#b09cff'], ['#b98a00', '#f2ca4c'], ['#1a96b8', '#74dcf5'], ['#6b7280', '#b8c0cc'],
  ];
  const kPhaseColors = [
    ['#f2b134', '#f2b134'], ['#e07a3f', '#ec9157'], ['#2f6fd0', '#6ba1f2'], ['#0d9488', '#3cc4b4'],
    ['#b5468f', '#e587c3'], ['#8b5fd6', '#b495f0'], ['#5b8c2a', '#95c95b'], ['#c0392b', '#f07b6e'],
    ['#64748b', '#94a3b8'], ['#a8b0bd', '#5d6675'],
  ];
  const kAxes = {
    steps: {title: 'step', units: [[1, '']]},
    tokens: {title: 'tokens', units: [[1e12, 'trillions'], [1e9, 'billions'], [1e6, 'millions'],
                                      [1e3, 'thousands'], [1, '']]},
    seconds: {title: 'time since the start',
              units: [[2 * 86400, 'd', 86400], [2 * 3600, 'h', 3600], [120, 'min', 60], [1, 's']]},
  };
  const kDragPixels = 8, kNearPixels = 7, kGapPixels = 14;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const shade = (pair) => pair[dark.matches ? 1 : 0];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colorOf = (place) => shade(kColors[place % kColors.length]);
  const isDashed = (place) => place >= kColors.length;
  const pale = (color) => color + '3d';  // with an alpha of 24 %

  // The size of an axis' unit, and its name, for numbers up to `most`.
  function unitOf(axis, most) {
    const units = kAxes[axis].units;
    const [limit, name, size] = units.find(([least]) => most >= least) || units.at(-1);
    return {size: size || limit, title: name ? `${kAxes[axis].title} (${name})` : kAxes[axis].title};
  }

  function nearest(points, x) {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle].x < x) low = middle; else high = middle;
    }
    return x - points[low].x <= points[high].x - x ? low : high;
  }

  // Curves that agree wherever both have a point hide each other. The first one gets the names of
  // all, and the later ones are drawn as dashes on top of it.
  function joinEqual(datasets) {
    const heads = [];
    for (const dataset of datasets.filter((each) => !each.isPale)) {
      const head = heads.find((each) => {
        const shared = dataset.data.filter((point) => each.values.has(point.x));
        return shared.length > 1 && shared.every((point) => each.values.get(point.x) === point.y);
      });
      if (head) {
        head.dataset.names.push(dataset.label);
        dataset.joins = head.dataset.names.length - 1;
        dataset.order = -dataset.joins;
      } else {
        dataset.names = [dataset.label];
        heads.push({dataset, values: new Map(dataset.data.map((point) => [point.x, point.y]))});
      }
    }
  }

  // Of each curve the point nearest to the pointer; none of a curve that does not reach there.
  Chart.Interaction.modes.ofEachCurve = (chart, event) => {
    const {x: pixel} = Chart.helpers.getRelativePosition(event, chart);
    const scale = chart.scales.x, x = scale.getValueForPixel(pixel);
    const items = [];
    chart.data.datasets.forEach((dataset, datasetIndex) => {
      const points = dataset.data;
      if (dataset.isPale || points.length === 0) return;
      const before = pixel - scale.getPixelForValue(points[0].x);
      const after = scale.getPixelForValue(points.at(-1).x) - pixel;
      if (before < -kGapPixels || after < -kGapPixels) return;
      const index = nearest(points, x);
      const element = chart.getDatasetMeta(datasetIndex).data[index];
      if (element) items.push({element, datasetIndex, index});
    });
    return items;
  };

  // Marks of runs, where the pointer is, and what is being dragged over.
  const overlay = {
    id: 'overlay',
    afterDatasetsDraw(chart) {
      const own = chart.overlay;
      if (!own) return;
      const {ctx, chartArea: area, scales: {x: scale}} = chart;
      ctx.save();
      ctx.beginPath();
      ctx.rect(area.left, area.top, area.width, area.height);
      ctx.clip();
      for (const mark of own.marks) {
        const x = scale.getPixelForValue(mark.x);
        if (x < area.left - 1 || x > area.right + 1) continue;
        if (mark.kind === 'checkpoint') {
          ctx.fillStyle = mark.color;
          ctx.beginPath();
          ctx.moveTo(x - 4, area.bottom);
          ctx.lineTo(x + 4, area.bottom);
          ctx.lineTo(x, area.bottom - 7);
          ctx.fill();
        } else {
          ctx.strokeStyle = mark.color;
          ctx.globalAlpha = 0.75;
          ctx.lineWidth = 1.5;
          ctx.setLineDash(mark.kind === 'restart' ? [5, 4] : [1.5, 3]);
          line(ctx, x, area);
          ctx.globalAlpha = 1;
        }
      }
      const pointed = chart.tooltip && chart.tooltip.opacity > 0 && own.drag === null;
      if (pointed) {
        ctx.strokeStyle = style('--muted');
        ctx.globalAlpha = 0.5;
        ctx.lineWidth = 1;
        ctx.setLineDash([]);
        line(ctx, chart.tooltip.caretX, area);
      }
      if (own.drag !== null) {
        ctx.globalAlpha = 0.16;
        ctx.fillStyle = style('--accent');
        ctx.fillRect(own.drag[0], area.top, own.drag[1] - own.drag[0], area.height);
      }
      ctx.restore();
    },
  };
  function line(ctx, x, area) {
    ctx.beginPath();
    ctx.moveTo(x, area.top);
    ctx.lineTo(x, area.bottom);
    ctx.stroke();
  }
  Chart.register(overlay);

  // A frame with a title and a place to draw in.
  function frame(parent, title, kind) {
    const card = parent.appendChild(document.createElement('figure'));
    card.className = `card chart ${kind}`;
    card.style.margin = 0;
    const head = card.appendChild(document.createElement('header'));
    const add = (tag, words, name) => {
      const element = head.appendChild(document.createElement(tag));
      element.textContent = words;
      if (name) element.className = name;
      return element;
    };
    add('h3', title);
    const unit = add('span', '', 'unit');
    const plot = card.appendChild(document.createElement('div'));
    plot.className = 'plot';
    const canvas = plot.appendChild(document.createElement('canvas'));
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', title);
    const none = plot.appendChild(document.createElement('div'));
    none.className = 'none';
    return {card, head, add, unit, plot, canvas, none};
  }

  function axisStyle(title, more = {}) {
    return {
      ...more,
      title: {display: Boolean(title), text: title, color: style('--muted'), font: {size: 11}},
      grid: {color: style('--line'), borderColor: style('--line'), tickLength: 4, ...more.grid},
      ticks: {color: style('--muted'), font: {size: 11}, maxRotation: 0, autoSkipPadding: 14,
              ...more.ticks},
    };
  }
  function tooltipStyle() {
    return {
      backgroundColor: style('--card'), borderColor: style('--line'), borderWidth: 1,
      titleColor: style('--text'), bodyColor: style('--text'), footerColor: style('--muted'),
      footerFont: {weight: 'normal', size: 11}, bodyFont: {size: 12}, titleFont: {size: 12},
      padding: 9, boxWidth: 9, boxHeight: 9, boxPadding: 4, caretSize: 0, caretPadding: 12,
    };
  }

  // options: {title, field, kind, unit, scale (a divisor of y), show (a number's words), log, zero
  // (the axis begins there), smooth (at least so much), plain (never smoothed)}.
  // onZoom(from, to): in units of the axis; onZoom(): all of it.
  class CurveChart {
    constructor(parent, options, onZoom) {
      this.options = options;
      this.field = options.field;
      this.onZoom = onZoom;
      this.log = Boolean(options.log);
      this.unit = {size: 1, title: ''};
      this.parts = frame(parent, options.title, options.kind || '');
      this.parts.unit.textContent = options.unit || '';
      const button = this.parts.add('button', 'log', 'log');
      button.type = 'button';
      button.title = 'Logarithmic vertical axis';
      const press = () => button.setAttribute('aria-pressed', String(this.log));
      button.addEventListener('click', () => { this.log = !this.log; press(); this.restyle(); });
      press();
      this.chart = new Chart(this.parts.canvas, {
        type: 'line', data: {datasets: []},
        options: {
          animation: false, responsive: true, maintainAspectRatio: false, parsing: false,
          normalized: true, interaction: {mode: 'ofEachCurve', intersect: false},
          elements: {point: {radius: 0, hoverRadius: 4}, line: {tension: 0, borderJoinStyle: 'round'}},
          plugins: {legend: {display: false},
                    tooltip: {callbacks: this.words(), filter: (item) => !item.dataset.joins}},
          scales: this.scales(),
        },
      });
      this.chart.overlay = {marks: [], drag: null};
      this.watchDrag();
    }
    scales() {
      const show = this.options.show || Words.plain;
      // On a logarithmic axis 1, 2 and 5 of each power of ten have words.
      const worded = (y) => !this.log || /^[125]/.test(y.toExponential(0)) ? show(y) : '';
      return {
        x: axisStyle(this.unit.title, {type: 'linear', ...this.limits,
                                       ticks: {callback: (x) => Words.plain(x), maxTicksLimit: 9,
                                               includeBounds: false}}),
        y: axisStyle('', {type: this.log ? 'logarithmic' : 'linear',
                          beginAtZero: Boolean(this.options.zero),
                          ticks: {callback: worded, maxTicksLimit: this.log ? 20 : 6}}),
      };
    }

    words() {
      const show = this.options.show || Words.plain;
      return {
        title: (items) => {
          if (items.length === 0) return '';
          const x = items[0].parsed.x * this.unit.size;
          if (this.axis === 'seconds') return Words.duration(x);
          return this.axis === 'tokens' ? `${Words.compact(x, 4)} tokens` : `step ${Words.grouped(x)}`;
        },
        label: (item) => ` ${item.dataset.names.join(' = ')}: ${show(item.parsed.y)}`,
        footer: (items) => items.length === 0 ? [] : this.marksNear(items[0].element.x),
      };
    }
    marksNear(pixel) {
      const near = this.chart.overlay.marks.filter(
          (mark) => Math.abs(this.chart.scales.x.getPixelForValue(mark.x) - pixel) <= kNearPixels);
      return near.slice(0, 4).map(
          (mark) => `${mark.kind} of ${mark.name}, step ${Words.grouped(mark.step)}` +
              (mark.words ? `: ${mark.words}` : ''));
    }

    watchDrag() {
      const {canvas} = this.parts, own = this.chart.overlay;
      const inside = (event) => {
        const area = this.chart.chartArea;
        const x = event.clientX - canvas.getBoundingClientRect().left;
        return Math.min(Math.max(x, area.left), area.right);
      };
      canvas.addEventListener('pointerdown', (event) => {
        if (event.button !== 0 || this.chart.data.datasets.length === 0) return;
        canvas.setPointerCapture(event.pointerId);
        own.drag = [inside(event), inside(event)];
      });
      canvas.addEventListener('pointermove', (event) => {
        if (own.drag === null) return;
        own.drag[1] = inside(event);
        this.chart.draw();
      });
      canvas.addEventListener('pointercancel', () => { own.drag = null; this.chart.draw(); });
      canvas.addEventListener('pointerup', () => {
        if (own.drag === null) return;
        const [from, to] = own.drag.sort((a, b) => a - b);
        own.drag = null;
        this.chart.draw();
        const at = (pixel) => this.chart.scales.x.getValueForPixel(pixel) * this.unit.size;
        if (to - from >= kDragPixels) this.onZoom(at(from), at(to));
      });
      canvas.addEventListener('dblclick', () => this.onZoom());
    }

    // curves: [{name, place, x, y, isPale}], the first on top; marks: [{kind, x, step, name, words,
    // place}]; view: {axis, from, to}; most: the largest x that any chart has.
    show(curves, marks, view, most) {
      this.marks = marks;
      const divisor = this.options.scale || 1;
      this.axis = view.axis;
      this.unit = unitOf(view.axis, most);
      this.limits = {min: (view.from === undefined ? 0 : view.from) / this.unit.size,
                     max: (view.to === undefined ? most : view.to) / this.unit.size};
      this.chart.data.datasets = curves.map((curve) => ({
        label: curve.name, place: curve.place, isPale: curve.isPale,
        data: curve.x.map((x, i) => ({x: x / this.unit.size, y: curve.y[i] / divisor})),
        borderWidth: curve.isPale ? 1 : 1.75,
        pointRadius: curve.x.length === 1 ? 3 : 0,
      }));
      joinEqual(this.chart.data.datasets);
      const any = curves.some((curve) => curve.x.length > 0);
      this.parts.none.textContent = any ? '' : this.options.none || 'Nothing was logged of this.';
      this.parts.canvas.style.visibility = any ? 'visible' : 'hidden';
      this.restyle();
    }

    mark(marks) {
      this.marks = marks;
      this.restyle();
    }

    // Colours are those of the ground as it is now.
    restyle() {
      for (const dataset of this.chart.data.datasets) {
        const color = colorOf(dataset.place);
        dataset.borderColor = dataset.isPale ? pale(color) : color;
        dataset.backgroundColor = dataset.borderColor;
        const dashes = isDashed(dataset.place) ? [6, 3] : [];
        dataset.borderDash = dataset.joins ? [8, 8 * dataset.joins] : dashes;
      }
      this.chart.overlay.marks = (this.marks || []).map(
          (mark) => ({...mark, x: mark.x / this.unit.size, color: colorOf(mark.place)}));
      this.chart.options.scales = this.scales();
      Object.assign(this.chart.options.plugins.tooltip, tooltipStyle());
      this.chart.update('none');
    }
  }

  // Horizontal bars, one a run: seconds of a step by phase.
  class PhaseChart {
    constructor(parent) {
      this.parts = frame(parent, 'Where a step goes', 'whole');
      this.parts.unit.textContent = 's a step, rank 0';
      this.chart = new Chart(this.parts.canvas, {
        type: 'bar', data: {labels: [], datasets: []},
        options: {
          animation: false, responsive: true, maintainAspectRatio: false, indexAxis: 'y',
          interaction: {mode: 'nearest', intersect: true},
          plugins: {
            legend: {position: 'bottom', labels: {boxWidth: 10, boxHeight: 10, padding: 12}},
            tooltip: {callbacks: {
              label: (item) => ` ${item.dataset.label}: ${Words.seconds(item.parsed.x)}, ` +
                  `${Words.fixed(100 * item.parsed.x / this.sums[item.dataIndex], 1)} %`}},
          },
        },
      });
    }
    // runs: [{name, seconds: {phase: s}}]
    show(runs) {
      const with_phases = runs.filter((run) => Object.keys(run.seconds).length > 0);
      const phases = [...new Set(with_phases.flatMap((run) => Object.keys(run.seconds)))];
      this.sums = with_phases.map(
          (run) => Object.values(run.seconds).reduce((sum, s) => sum + Math.max(0, s), 0));
      this.chart.data.labels = with_phases.map((run) => run.name);
      this.chart.data.datasets = phases.map((phase) => ({
        label: phase.replaceAll('_', ' '), maxBarThickness: 26,
        data: with_phases.map((run) => Math.max(0, run.seconds[phase] || 0)),
      }));
      const kHead = 96, kRow = 34;
      this.parts.plot.style.height = `${kHead + kRow * Math.max(1, with_phases.length)}px`;
      this.parts.none.textContent = with_phases.length > 0 ? '' : 'No phases were logged.';
      this.restyle();
    }
    restyle() {
      this.chart.data.datasets.forEach((dataset, i) => {
        dataset.backgroundColor = shade(kPhaseColors[i % kPhaseColors.length]);
      });
      const most = this.parts.plot.clientWidth < 500 ? 16 : 28;
      const short = (name) => name.length > most
          ? `${name.slice(0, most / 2 - 2)}…${name.slice(1 - most / 2)}` : name;
      const labels = () => this.chart.data.labels;
      this.chart.options.scales = {
        x: axisStyle('', {stacked: true, ticks: {maxTicksLimit: 8}}),
        y: axisStyle('', {stacked: true, grid: {display: false},
                          ticks: {color: style('--text'), autoSkip: false,
                                  callback: (i) => short(labels()[i])}}),
      };
      Object.assign(this.chart.options.plugins.tooltip, tooltipStyle());
      this.chart.options.plugins.legend.labels.color = style('--muted');
      this.chart.update('none');
    }
  }

  return {CurveChart, PhaseChart, colorOf, isDashed, dark};
})();
