// The tools that a person defines: what is wrong with them, in plain words, before the server is asked. The rules are
// the server's (a function alone or within {"type": "function", "function": ...}), and that names differ.
//
//   toolsProblem('[{"type": "function", "function": {}}]')   // 'tool 1: its function needs a "name" …'; '' = none

import {jsonProblem} from './json_problem.js';

export const kExampleTools = [['get_weather', 'Get the weather of a city'], ['get_time', 'Get the local time of a city']]
  .map(([name, description]) => ({
    type: 'function',
    function: {
      name,
      description,
      parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
    },
  }));

export function toolsProblem(text) {
  if (text.trim() === '') return '';
  const noJson = jsonProblem(text);
  if (noJson) return `not valid JSON: ${noJson}`;
  const tools = JSON.parse(text);
  if (!Array.isArray(tools)) return 'must be an array of tools: [ … ]';
  const names = new Map();
  for (const [i, tool] of tools.entries()) {
    const problem = toolProblem(tool);
    if (problem) return `tool ${i + 1}: ${problem}`;
    const {name} = tool.function ?? tool;
    if (names.has(name)) return `tool ${i + 1}: “${name}” is the name of tool ${names.get(name)} already`;
    names.set(name, i + 1);
  }
  return '';
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

function toolProblem(tool) {
  if (!isObject(tool)) return 'must be an object: { … }';
  if (tool.type !== undefined && tool.type !== 'function') return 'its "type" can only be "function"';
  if (tool.function !== undefined && !isObject(tool.function)) return 'its "function" must be an object: { … }';
  if (tool.type !== undefined && tool.function === undefined && tool.name === undefined) {
    return 'it needs a "function": {"name": …}';
  }
  const {name, description, parameters} = tool.function ?? tool;
  if (typeof name !== 'string' || name === '') return 'its function needs a "name", a text that is not empty';
  if (typeof (description ?? '') !== 'string') return `the "description" of “${name}” must be a text`;
  if (!isObject(parameters ?? {})) return `the "parameters" of “${name}” must be a JSON schema, an object: { … }`;
  return '';
}
