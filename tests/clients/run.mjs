// node run.mjs MODULE FUNCTION ARGUMENTS: calls the function. Prints a line {progress} for each progress message, and
// {result} as the last line.
const [, , module, name, json] = process.argv;
const print = (line) => console.log(JSON.stringify(line));
const run = (await import(`./${module}.mjs`))[name];
print({ result: await run({ ...JSON.parse(json), onProgress: (progress) => print({ progress }) }) });
