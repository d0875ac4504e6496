// The server's API as the page uses it: a chat answer as events, and what went wrong in plain words.
//
//   for await (const event of streamChat(body, abort.signal)) ...   // chunks of /v1/chat/completions
//
// Throws ApiFailure; an abort throws the AbortError of fetch.

export class ApiFailure extends Error {
  constructor(message, {detail = '', canRetry = true} = {}) {
    super(message);
    this.detail = detail;
    this.canRetry = canRetry;
  }
}

export async function fetchJson(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw unreachable();
  }
  if (!response.ok) throw await failureOf(response);
  return response.json();
}

export async function* streamChat(body, signal) {
  let response;
  try {
    response = await fetch('/v1/chat/completions', {
      method: 'POST',
      headers: {'Content-Type': 'application/json', Accept: 'text/event-stream'},
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw unreachable();
  }
  if (!response.ok) throw await failureOf(response);
  for await (const data of serverSentEvents(response.body)) {
    if (data === '[DONE]') return;
    const event = JSON.parse(data);
    if (event.error) {
      throw new ApiFailure('The server broke the answer off.', {detail: event.error.message});
    }
    yield event;
  }
  throw new ApiFailure('The connection ended before the answer was complete.');
}

// The data of each event; comments (": keep-alive") and other fields are skipped.
export async function* serverSentEvents(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = '';
  try {
    for (;;) {
      let chunk;
      try {
        chunk = await reader.read();
      } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new ApiFailure('The connection broke before the answer was complete.');
      }
      if (chunk.done) return;
      buffer += chunk.value;
      const events = buffer.split(/\r?\n\r?\n/);
      buffer = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith('data:'));
        if (data.length) yield data.map((line) => line.slice(5).replace(/^ /, '')).join('\n');
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const unreachable = () =>
  new ApiFailure('The server cannot be reached.', {detail: 'It may have been stopped, or the network is down.'});

const tooLong = (param) => (String(param).startsWith('max_')
  ? 'So long an answer does not fit. Lower “Max tokens” or leave it empty.'
  : 'The conversation is too long for this model.');

async function failureOf(response) {
  let error = {};
  try {
    const body = await response.json();
    error = body.error ?? body;
  } catch {
    // No JSON in the body: the status says enough.
  }
  const wait = Number(response.headers.get('Retry-After')) || 0;
  const later = wait ? `Try again in ${wait} s.` : 'Try again in a moment.';
  const detail = typeof error.message === 'string' ? error.message : '';
  switch (response.status) {
    case 400:
    case 404:
    case 413:
    case 422: {
      const title = error.code === 'context_length_exceeded' ? tooLong(error.param)
        : `The server refused the request${error.param ? ` because of “${error.param}”` : ''}.`;
      return new ApiFailure(title, {detail});
    }
    case 401:
    case 403:
      return new ApiFailure('The server asks for an API key.', {detail: 'Reload the page and enter the key as the password.', canRetry: false});
    case 429:
      return new ApiFailure('The server is busy: its queue is full.', {detail: later});
    case 503:
      return new ApiFailure('The server is not taking requests right now.', {detail: detail || later});
    default:
      return new ApiFailure(`The server failed (status ${response.status}).`, {detail});
  }
}
