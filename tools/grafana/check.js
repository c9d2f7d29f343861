// usage: node check.js DASHBOARD.json…   Checks each against dashboard.ts, and exits
// with 1 if one does not fit.
import { readFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import ts from "typescript";

// check returns what is wrong with the text of dashboards, by their names.
export function check(texts) {
  const options = {
    strict: true, noEmit: true, skipLibCheck: true, types: [],
    target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
  };
  // To the compiler each is a module beside this one, with its JSON in the same lines.
  const modules = new Map(Object.entries(texts).map(([name, text], i) => [
    fileURLToPath(new URL(`dashboard-${i}.ts`, import.meta.url)), { name, text: `import type { Dashboard } from "./dashboard"; export const dashboard: Dashboard = ${text}` },
  ]));
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (path) => modules.has(path) || fileExists(path);
  host.getSourceFile = (path, ...rest) => modules.has(path) ? ts.createSourceFile(path, modules.get(path).text, options.target) : getSourceFile(path, ...rest);
  return ts.getPreEmitDiagnostics(ts.createProgram([...modules.keys()], options, host)).map((found) => {
    const said = ts.flattenDiagnosticMessageText(found.messageText, "\n");
    if (!found.file) return said;
    const line = found.file.getLineAndCharacterOfPosition(found.start).line + 1;
    return `${modules.get(found.file.fileName)?.name ?? found.file.fileName}:${line}: ${said}`;
  });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const files = process.argv.slice(2);
  const wrong = check(Object.fromEntries(files.map((file) => [file, readFileSync(file, "utf8")])));
  for (const line of wrong) console.error(line);
  console.log(`${files.length} dashboards, ${wrong.length} errors`);
  process.exitCode = wrong.length || !files.length ? 1 : 0;
}
