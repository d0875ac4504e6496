// What the server says of itself, GET /server_info, asked for when it takes requests and again when it was started anew.
//
//   const facts = new ServerFacts(feed);
//   facts.listen((info) => show(info));       // once it is known, and each time it changes
//   contextOf(facts.info)                     // tokens, or null

import {fetchJson} from './api.js';

export class ServerFacts {
  constructor(feed) {
    this.info = null;
    this.listeners = [];
    this.since = null;  // what the feed said when they were asked for
    feed.listen(() => this.#look(feed));
  }

  listen(listener) {
    this.listeners.push(listener);
    if (this.info) listener(this.info);
  }

  #look({error, readiness, model, numRestarts}) {
    if (error || readiness.status === 'loading') return;
    const since = `${numRestarts} ${model}`;
    if (since === this.since) return;
    this.since = since;
    this.#ask();
  }

  async #ask() {
    try {
      this.info = await fetchJson('/server_info');
    } catch {
      this.since = null;  // with the next sample
      return;
    }
    for (const listener of this.listeners) listener(this.info);
  }
}

// The longest sequence, prompt and answer.
export const contextOf = (info) => (Number.isFinite(info?.max_req_input_len) ? info.max_req_input_len + 1 : null);
