// A kubelet as far as device plugins see it, on gRPC for JavaScript: makes DIR/kubelet.sock, takes registrations, asks
// the plugin for its options before it answers them, and watches its devices.
//
//   node kubelet.js DIR
//
// Prints a JSON line for each event; reads orders as JSON lines:
//   {"id": 1, "call": "Allocate", "request": {...}}   calls a method of the plugin
//   {"id": 1, "raw": "/service/Method", "hex": "..."} calls a method by its name, with these bytes
//   {"id": 1, "bench": "Allocate", "request": {...}, "times": 1000}
//   {"cut": true}                                     ends the watch of the devices
//   {"plugin": "SOCKET"}                              the next calls go to this plugin, which need not register
//   {"id": 1, "fresh": true}                          answers with the devices, over a connection of its own
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const dir = process.argv[2];
const api = grpc.loadPackageDefinition(loader.loadSync(path.join(__dirname, 'deviceplugin-v1beta1.proto'),
  {keepCase: true, longs: Number, defaults: true, arrays: true})).v1beta1;
const socket = path.join(dir, 'kubelet.sock');
let plugin = null, stream = null, address = null;

const say = (event) => process.stdout.write(JSON.stringify({at: Date.now() / 1000, ...event}) + '\n');

function watch(resource) {
  if (stream) stream.cancel();
  const mine = stream = plugin.ListAndWatch({});
  mine.on('data', ({devices}) => say({event: 'list', resource, devices: devices.map((d) => d.ID),
    healthy: devices.filter((d) => d.health === 'Healthy').map((d) => d.ID)}));
  mine.on('error', (e) => { if (mine === stream) say({event: 'over', code: e.code, details: e.details}); });
  mine.on('end', () => { if (mine === stream) say({event: 'over', code: 0}); });
}

function register(call, callback) {
  const r = call.request;
  if (r.version !== 'v1beta1') {
    callback({code: grpc.status.UNKNOWN, details: `unsupported version ${r.version}`});
    return;
  }
  if (plugin) plugin.close();
  address = path.join(dir, r.endpoint);
  plugin = reach(address);
  plugin.GetDevicePluginOptions({}, {deadline: Date.now() + 5000}, (error, options) => {
    if (error) {
      say({event: 'mute', details: error.details});
      callback({code: error.code, details: error.details});
      return;
    }
    callback(null, {});
    say({event: 'register', endpoint: r.endpoint, resource: r.resource_name, told: r.options, options});
    watch(r.resource_name);
  });
}

const answer = (id) => (error, response) => say(error ? {event: 'answer', id, code: error.code, details: error.details} :
  {event: 'answer', id, code: 0, response: Buffer.isBuffer(response) ? response.toString('hex') : response});

async function bench({id, bench: method, request, times}) {
  const ms = [];
  for (let i = 0; i < times; i++) {
    const begun = process.hrtime.bigint();
    await new Promise((done, fail) => plugin[method](request, (error, response) => error ? fail(error) : done(response)));
    ms.push(Number(process.hrtime.bigint() - begun) / 1e6);
  }
  say({event: 'answer', id, code: 0, response: ms});
}

const reach = (socket) => new api.DevicePlugin('unix:' + socket, grpc.credentials.createInsecure(),
  {'grpc.use_local_subchannel_pool': 1});

function fresh(id) {
  const other = reach(address), list = other.ListAndWatch({}, {deadline: Date.now() + 20000});
  const end = (error, response) => { list.cancel(); other.close(); answer(id)(error, response); };
  list.once('data', ({devices}) => { list.removeAllListeners('error'); list.on('error', () => {}); end(null, devices); });
  list.once('error', (e) => end(e));
}

readline.createInterface({input: process.stdin}).on('line', (line) => {
  const order = JSON.parse(line), whole = (b) => b;
  const deadline = Date.now() + 20000;
  if (order.cut) stream.cancel();
  else if (order.plugin) plugin = reach(order.plugin);
  else if (order.fresh) fresh(order.id);
  else if (order.bench) bench(order).catch((e) => answer(order.id)(e));
  else if (order.raw) plugin.makeUnaryRequest(order.raw, whole, whole, Buffer.from(order.hex || '', 'hex'), {deadline}, answer(order.id));
  else plugin[order.call](order.request, {deadline}, answer(order.id));
}).on('close', () => process.exit(0));

// kubelet removes all sockets of its directory when it starts.
for (const name of fs.readdirSync(dir))
  if (fs.lstatSync(path.join(dir, name)).isSocket()) fs.unlinkSync(path.join(dir, name));
const server = new grpc.Server();
server.addService(api.Registration.service, {Register: register});
server.bindAsync('unix:' + socket, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  say({event: 'ready'});
});
