'use strict';
// What the page asks the server for. The token, if one is asked for, is in the page's own address.
const Server = (() => {
  const kLimit_ms = 60000;
  const token = new URLSearchParams(location.search).get('token');

  // pairs: [[name, value], …]; a value that is undefined is left out.
  async function ask(path, pairs = []) {
    const query = new URLSearchParams();
    for (const [name, value] of pairs) if (value !== undefined) query.append(name, value);
    if (token) query.append('token', token);
    const answer = await fetch(`api/${path}?${query}`,
                               {cache: 'no-store', signal: AbortSignal.timeout(kLimit_ms)});
    const body = await answer.text();
    if (answer.ok) return JSON.parse(body);
    let words = body.trim();
    try { words = JSON.parse(body).error || words; } catch (notJson) { /* the words as they are */ }
    throw new Error(words);
  }
  const named = (runs) => runs.map((run) => ['run', run]);

  return {
    runs: () => ask('runs'),
    run: (run) => ask('run', named([run])),
    curve: (runs, field, view, smooth, points) => ask('curve', [
      ...named(runs), ['field', field], ['x', view.axis], ['from', view.from], ['to', view.to],
      ['points', points], ['smooth', smooth || undefined]]),
    phases: (runs, view) => ask('phases', [
      ...named(runs), ['x', view.axis], ['from', view.from], ['to', view.to]]),
    config: (runs) => ask('config', named(runs)),
  };
})();
