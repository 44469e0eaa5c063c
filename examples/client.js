// A worker in another language, written from lua/README.md: joins a job, ticks beside whoever else is in it, leaves.
// The clock alone, no tables. It adopts the job's settings: start the others first, or it begins a job of its own.
const { readFileSync } = require('fs'), { randomBytes } = require('crypto'), { createInterface } = require('readline');
const net = require('net'), os = require('os'), [url, job, worker, clocks] = process.argv.slice(2);
if (!clocks) process.exit(console.error('usage: node client.js redis://HOST:PORT|unix:///PATH JOB WORKER CLOCKS') || 2);
const fail = (error) => { console.error(`worker ${worker}: ${error.message}`); process.exit(1); };

// Redis. Every reply that is asked for here is one line of text, so its lines are all that has to be told apart.
function connect(heard) { // returns ask(...words), a promise of the reply; messages go to heard()
  const { protocol, pathname: path, hostname: host, port } = new URL(url), asked = [], lines = [];
  const socket = net.connect(protocol === 'unix:' ? { path } : { host, port: port || 6379, noDelay: true });
  socket.on('error', fail).on('close', () => fail(new Error('connection lost'))); // to go on: reconnect, sync first
  createInterface({ input: socket }).on('line', (line) => {
    lines.push(line);
    const kind = lines[0][0], wanted = lines[2] === 'message' ? 7 : kind === '*' ? 6 : kind === '$' ? 2 : 1;
    if (lines.length < wanted && lines[0] !== '$-1') return;
    lines.length = 0;
    if (wanted === 7) heard(line);
    else asked.shift()[kind === '-' ? 1 : 0](kind === '-' ? new Error(line) : line === '$-1' ? null : line);
  });
  return (...words) => new Promise((...settle) => {
    asked.push(settle);
    const packed = words.map(String).map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    socket.write(`*${words.length}\r\n${packed.join('')}`);
  });
}

// The scripts: their text with the includes resolved, their keys, what they are told, their answer as words.
const lua = (name) => readFileSync(`${__dirname}/../lua/${name}.lua`, 'utf8');
const source = (name) => lua(name).replace(/^--@include (\w+)$/gm, (_, part) => lua(`lib/${part}`));
const TICK = 'config clocks order ids log min', REST = 'config clocks order ids leases log graced runs min';
const key = (name) => `ssp:{${job}}:${name}`, nonce = randomBytes(8).toString('hex'), me = {};
const host = os.hostname().replace(/[^\w.-]/g, '_').slice(0, 64);
let now = { epoch: null, clock: 0 }, wake = () => {}, rechecks = 0;
async function call(name, ...rest) { // says what I know, then what I want: it can be said again
  const keys = (name === 'tick' ? TICK : REST).split(' ').map(key);
  const mine = name === 'join' ? [] : [me.run, now.epoch, worker, me.incarnation, now.clock];
  const answer = (await command('EVAL', source(name), keys.length, ...keys, ...mine, ...rest)).split(' ');
  if (answer[0] === '-4') return sync().then(() => call(name, ...rest));
  if (answer[0] !== '0') throw new Error(`${name} refused: ${answer.join(' ')}`); // out of it: see the codes
  return note(answer.slice(1)), answer;
}
function note([epoch, low, bound, , stop, started, clock = 0]) { // an answer, or a message, which may be the older one
  const min = epoch === now.epoch ? Math.max(now.min, low) : Number(low); // within an epoch the min never falls
  now = { epoch, min, bound: Number(bound), stopped: stop === '1', started: now.started || started === '1',
    clock: Math.max(now.clock, clock) }; // a sync may find that a tick had happened
}
async function sync() { // returns the ms after which to look again
  const answer = await call('sync', me.position, me.tag, nonce, host, process.pid);
  [me.position, me.tag] = answer.slice(12); // the evidence, should the server ever forget
  return answer[10] < 0 ? 2000 : Math.min(2000, Number(answer[10]) + 1);
}
async function wait() { // a message ends it; the re-check is for lost messages and for members that died
  const free = () => now.stopped || (now.started && (now.bound < 0 || now.clock - now.min <= now.bound));
  for (let limit = 2000, timer; !free(); clearTimeout(timer)) {
    const late = await new Promise((done) => { wake = () => done(false); timer = setTimeout(done, limit, true); });
    if (late) { rechecks += 1; limit = await sync(); }
  }
}
function hear(message) {
  const [run, ...words] = message.split(' '); // run epoch min staleness membership stop started
  if (run === me.run) words[0] === now.epoch ? (note(words.slice(0, 6)), wake()) : sync().then(wake, fail); // others are not for me
}
const command = connect(), subscriber = connect(hear);
(async () => {
  await subscriber('SUBSCRIBE', key('min')); // confirmed before anything is read: whatever changes later is heard
  const [holder] = (await command('HGET', key('ids'), worker) || '0').split(' ');
  const answer = await call('join', 1, worker, nonce, holder, host, process.pid, '', '', '', '', '', '');
  Object.assign(me, { incarnation: answer[9], run: answer[10], position: answer[15], tag: answer[16] });
  await sync(); // what came before I knew my run was not heard
  setInterval(() => sync().catch(fail), answer[13] / 3);
  await wait();
  for (; now.clock < clocks && !now.stopped; await wait()) { // the test comes after the increment
    console.log(JSON.stringify({ clock: now.clock, min: now.min, bound: now.bound })); // a step's work goes here
    await call('tick', now.clock + 1, '-:', -1);
  }
  await call('leave', now.clock < clocks ? 'left' : 'done');
  console.log(JSON.stringify({ clock: now.clock, rechecks }));
})().then(() => process.exit(0), fail);
