// node run.mjs MODULE FUNCTION ARGUMENTS: what the function gives, as the last line; what it tells meanwhile before it.
const [, , module, name, given] = process.argv;
const say = (line) => console.log(JSON.stringify(line));
const does = (await import(`./${module}.mjs`))[name];
say({ gave: await does({ ...JSON.parse(given), told: (what) => say({ told: what }) }) });
