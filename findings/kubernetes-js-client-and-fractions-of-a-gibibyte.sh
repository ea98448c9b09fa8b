#!/bin/sh
# Kubernetes takes "1.5Gi" as memory, and tools show it so. The guess: the official JavaScript client reads each
# quantity that the API server returns.
#
# @kubernetes/client-node 1.4.0 reads a number with a decimal point and with a binary suffix by BigInt(), which takes
# whole numbers only. So topNodes() fails for the whole cluster as soon as one pod requests 1.5Gi. 0.5 (processors),
# 1e3 and 1536Mi work. The same line is in release 2.0.1. Node 20.
#
# Seen: Cannot convert 1.5 to a BigInt / 1610612736
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm init --yes >/dev/null
npm install --silent --no-fund --no-audit @kubernetes/client-node@1.4.0
cat >top.mjs <<'END'
import * as k8s from '@kubernetes/client-node';

const requests = {};
const pod = {metadata: {name: 'p'}, spec: {nodeName: 'n', containers: [{name: 'c', resources: {requests}}]}, status: {phase: 'Running'}};
const node = {metadata: {name: 'n'}, status: {allocatable: {cpu: '2', memory: '4Gi'}}};
const api = {listNode: async () => ({items: [node]}), listPodForAllNamespaces: async () => ({items: [pod]})};
for (const memory of ['1.5Gi', '1536Mi']) {
    Object.assign(requests, {cpu: '0.5', memory});
    await k8s.topNodes(api).then(nodes => console.log(String(nodes[0].Memory.RequestTotal)), error => console.log(error.message));
}
END
found=$(node top.mjs)
echo "$found"
[ "$found" = "Cannot convert 1.5 to a BigInt
1610612736" ]
