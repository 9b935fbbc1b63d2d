// Counts passed tests by kind: count.mjs SUITE RESULTS. FAILED=1 lists the tests that fail.
import fs from 'node:fs'
import path from 'node:path'

const [suite, results] = process.argv.slice(2)
const { default: sets } = await import(path.join(suite, 'tests/index.mjs'))
const tests = sets.flatMap(set => set.tests).filter(test => !test.browser_only)
const kind = test => test.kind ?? 'required'
const read = file => JSON.parse(fs.readFileSync(file, 'utf8'))
const passed = (found, wanted) => tests.filter(test => kind(test) === wanted && found[test.id] === true).length
const all = wanted => tests.filter(test => kind(test) === wanted).length
const rows = [['serpent', read(results)]]
for (const file of fs.readdirSync(path.join(suite, 'results')).filter(file => file.endsWith('.json'))) {
  const name = file.replace('.json', '')
  if (!['chrome', 'firefox', 'safari'].includes(name)) rows.push([name, read(path.join(suite, 'results', file))])
}
console.log(`| server | required, of ${all('required')} | optimal, of ${all('optimal')} |\n|---|---|---|`)
rows.sort((a, b) => passed(b[1], 'required') - passed(a[1], 'required'))
for (const [name, found] of rows) console.log(`| ${name} | ${passed(found, 'required')} | ${passed(found, 'optimal')} |`)
if (process.env.FAILED) {
  for (const test of tests) {
    const found = rows.find(row => row[0] === 'serpent')[1][test.id]
    if (found !== true && kind(test) !== 'check') console.log(kind(test), test.id, JSON.stringify(found))
  }
}
