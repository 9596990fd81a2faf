// Print each workflow given as an argument, and its errors; exit with 1 if there are any. Run by `.ci/workflows`.
import { NoOperationTraceWriter, convertWorkflowTemplate, parseWorkflow } from "@actions/workflow-parser";
import { readFileSync } from "node:fs";

async function errorsOf(name) {
  const file = { name, content: readFileSync(name, "utf8") };
  const { context, value } = parseWorkflow(file, new NoOperationTraceWriter());
  if (value) await convertWorkflowTemplate(context, value);  // finds further errors, such as jobs that wait in a circle
  return context.errors.getErrors().map((error) => error.message);
}

async function main(names) {
  for (const name of names) {
    const errors = await errorsOf(name);
    console.log([`${name}: ${errors.length ? "rejected" : "valid"}`, ...errors].join("\n  "));
    if (errors.length) process.exitCode = 1;
  }
}

main(process.argv.slice(2));
