#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The real Helm installs the chart into a real Kubernetes API server with its scheduler and controllers. The nodes and the
# containers are pretended (kwok); everything that decides about objects is real, with restricted pod security. If this
# fails, the chart does not install, upgrade, roll back, survive a drained node or leave nothing behind.
#
#   tests/rehearsal/cluster.sh build/release
#
# Builds Kubernetes, etcd, kwok and Helm once with Go, which takes ten minutes, into build/release/cluster. Exits with 77
# (skipped) without Go or its modules.
source "$(dirname "${BASH_SOURCE[0]}")/../testing/services.sh"
build=$(cd "$1" && pwd)
tools=$build/cluster
chart=$root/deploy/helm/foretoken
crds=$root/../shared/crds
readonly KUBERNETES=v1.36.3 KUBERNETES_STAGING=v0.36.3 ETCD=v3.7.3 HELM=v3.22.0 KWOK=v0.8.0

build_tools() {
  local folder version=k8s.io/component-base/version
  [[ -e $tools/ready ]] && return
  command -v go >/dev/null || skip "no Go here"
  rm -rf "$tools" && mkdir -p "$tools"/{etcd,kubernetes,kwok}
  export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"
  # The modules of etcd and Kubernetes have replacements, which `go install` refuses; a module of ours may have them.
  cd "$tools/etcd"
  go mod init example.com/etcd
  go get -tool "go.etcd.io/etcd/server/v3@$ETCD" || skip "the modules of etcd were not reached"
  go build -ldflags "-s -w" -o "$tools/bin/etcd" go.etcd.io/etcd/server/v3 || fail "etcd does not build"
  cd "$tools/kubernetes"
  go mod init example.com/kubernetes
  go mod edit -require "k8s.io/kubernetes@$KUBERNETES"
  folder=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  [[ -n $folder ]] || skip "the modules of Kubernetes were not reached"
  sed -n 's/^\t\(k8s\.io\/[a-z-]*\) => .*/\1/p' "$folder/go.mod" | sort -u | while read -r module; do
    go mod edit -replace "$module=$module@$KUBERNETES_STAGING"
  done
  local packages=(k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl})
  go get -tool "${packages[@]/%/@$KUBERNETES}" || skip "the modules of Kubernetes were not reached"
  go build -ldflags "-s -w -X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=36" \
    -o "$tools/bin/" "${packages[@]}" || fail "Kubernetes does not build"
  GOBIN=$tools/bin go install -ldflags "-s -w" "sigs.k8s.io/kwok/cmd/kwok@$KWOK" || fail "kwok does not build"
  GOBIN=$tools/bin go install -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$HELM" \
    "helm.sh/helm/v3/cmd/helm@$HELM" || fail "Helm does not build"
  # kwok pretends what its stages say.
  folder=$(go mod download -json "sigs.k8s.io/kwok@$KWOK" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/kustomize/stage
  for stage in "$folder"/node/fast/node-initialize.yaml "$folder"/node/heartbeat-with-lease/*.yaml \
    "$folder"/pod/fast/pod-{ready,complete,delete}.yaml; do
    [[ ${stage##*/} == kustomization.yaml ]] || { cat "$stage" && echo "---"; }
  done >"$tools/stages.yaml"
  # The pod of `helm test` ends as the pod of a Job does.
  sed 's/name: pod-complete/name: pod-complete-test/; s/\.metadata\.ownerReferences.*kind/.metadata.annotations["helm.sh\/hook"]/
    s/Job/test/' "$folder/pod/fast/pod-complete.yaml" >>"$tools/stages.yaml"
  touch "$tools/ready"
}

# run_in_background NAME COMMAND...
run_in_background() {
  local name=$1
  shift
  "$@" >"$scratch/$name.log" 2>&1 &
  pids+=("$!")
}

start_cluster() {
  find_ports 8
  local etcd="http://127.0.0.1:${ports[0]}" server="https://127.0.0.1:${ports[2]}"
  openssl genrsa -out "$scratch/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$scratch/accounts.key" -pubout -out "$scratch/accounts.pub" 2>/dev/null
  echo 'secret,admin,admin,system:masters' >"$scratch/tokens.csv"
  run_in_background etcd "$tools/bin/etcd" --unsafe-no-fsync --data-dir="$scratch/etcd" --listen-client-urls="$etcd" \
    --advertise-client-urls="$etcd" --listen-peer-urls="http://127.0.0.1:${ports[1]}"
  run_in_background apiserver "$tools/bin/kube-apiserver" --etcd-servers="$etcd" --cert-dir="$scratch/certificates" \
    --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="${ports[2]}" --authorization-mode=RBAC \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$scratch/accounts.pub" \
    --service-account-signing-key-file="$scratch/accounts.key" --token-auth-file="$scratch/tokens.csv" \
    --service-cluster-ip-range=10.96.0.0/24 --endpoint-reconciler-type=none
  cat >"$scratch/kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{ name: here, cluster: { server: "$server", insecure-skip-tls-verify: true } }]
users: [{ name: admin, user: { token: secret } }]
contexts: [{ name: here, context: { cluster: here, user: admin, namespace: llm } }]
current-context: here
YAML
  export KUBECONFIG=$scratch/kubeconfig HELM_CACHE_HOME=$scratch/helm HELM_CONFIG_HOME=$scratch/helm HELM_DATA_HOME=$scratch/helm
  PATH=$tools/bin:$PATH
  wait_for kubectl get --raw /readyz
  run_in_background controllers kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false \
    --bind-address=127.0.0.1 --secure-port="${ports[3]}" --service-account-private-key-file="$scratch/accounts.key"
  run_in_background scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1 \
    --secure-port="${ports[4]}"
  run_in_background kwok kwok --kubeconfig="$KUBECONFIG" --manage-all-nodes=true --node-lease-duration-seconds=40 --config="$tools/stages.yaml" \
    --server-address="127.0.0.1:${ports[5]}"
  for node in a b c; do
    kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: Node
metadata: { name: node-$node, labels: { kubernetes.io/hostname: node-$node, topology.kubernetes.io/zone: zone-$node } }
status:
  allocatable: &resources { cpu: "32", memory: 256Gi, pods: "110", nvidia.com/gpu: "2" }
  capacity: *resources
YAML
  done
  wait_for kubectl wait --for=condition=Ready node --all --timeout=1s
  if [[ -d $crds ]]; then kubectl create -f "$crds" >/dev/null; fi
  kubectl create namespace llm >/dev/null
  kubectl label namespace llm pod-security.kubernetes.io/enforce=restricted >/dev/null
  wait_for kubectl get serviceaccount default
  for claim in weights drafts heads memory; do
    create_volume $claim 1Gi
    kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: $claim }
spec: { accessModes: [ReadWriteMany], resources: { requests: { storage: 1Gi } }, storageClassName: "", volumeName: $claim }
YAML
  done
}

# create_volume NAME SIZE [CLASS]
create_volume() {
  kubectl create -f - >/dev/null <<YAML
apiVersion: v1
kind: PersistentVolume
metadata: { name: $1 }
spec: { capacity: { storage: $2 }, accessModes: [ReadWriteMany], storageClassName: "${3:-}", nfs: { server: files, path: /$1 } }
YAML
}

# The pods of a deployment that serve. Its own status lags behind them.
num_ready() {
  kubectl get pods -o 'jsonpath={range .items[*]}{.metadata.name}{" "}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' |
    grep -c "^$1-.* True$" || true
}

# expect_num NUMBER COMMAND...: the command prints so many lines.
expect_num() {
  local expected=$1 lines
  shift
  lines=$("$@" 2>/dev/null | wc -l)
  ((lines == expected)) || fail "expected $expected lines of: $*, got $lines: $("$@")"
}

# while_ready DEPLOYMENT NUMBER COMMAND...: runs a command; meanwhile so many pods are ready at any time.
while_ready() {
  local deployment=$1 least=$2 status=0 ready lowest=1000
  shift 2
  "$@" >"$scratch/command.log" 2>&1 &
  local pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    ready=$(num_ready "$deployment")
    ((ready >= lowest)) || lowest=$ready
    sleep 0.1
  done
  wait "$pid" || status=$?
  ((lowest >= least)) || fail "$*: only $lowest pods of $deployment were ready, expected $least: $(<"$scratch/command.log")"
  return "$status"
}

# commands_of_the_page SECTION: the first commands of this section of docs/operating.md, as they stand there.
commands_of_the_page() {
  sed -n "/^## $1\$/,/^## /p" "$root/docs/operating.md" | sed '1,/^```sh$/d; /^```$/,$d'
}

# Into $scratch/objects: all that has the label of the release llama, but for events, which the cluster removes.
list_objects() {
  local kinds
  kinds=$(kubectl api-resources --verbs=list --namespaced -o name | grep -v '^events' | paste -sd,) &&
    kubectl get "$kinds" -l app.kubernetes.io/instance=llama -o name
} >"$scratch/objects" 2>"$scratch/objects.err"

nothing_is_left() {
  list_objects && [[ ! -s $scratch/objects ]]
}

# Tests the release llama and removes it as docs/operating.md says. Nothing is left.
remove_release() {
  local commands
  helm test llama >"$scratch/test.log" 2>&1 || fail "helm test: $(<"$scratch/test.log")"
  commands=$(commands_of_the_page "In a cluster" | grep -e uninstall -e --selector=app.kubernetes.io/instance)
  (($(wc -l <<<"$commands") == 2)) || fail "docs/operating.md does not say how to remove a release: $commands"
  list_objects || fail "the objects of the release cannot be listed: $(<"$scratch/objects.err")"
  grep -q '^deployment\.apps/llama-verifier$' "$scratch/objects" || fail "no Deployment among: $(<"$scratch/objects")"
  bash -ec "${commands//-n models /}" >"$scratch/remove.log" 2>&1 || fail "$commands: $(<"$scratch/remove.log")"
  (wait_for nothing_is_left) || fail "left behind: $(cat "$scratch/objects" "$scratch/objects.err")"
}

install_minimal() {
  helm install llama "$chart" --set model.claim=weights --wait --timeout 2m >"$scratch/notes" ||
    fail "a minimal installation fails"
  grep -q 'llama serves the model "llama" at llama-verifier.llm.svc:50051' "$scratch/notes" || fail "$(<"$scratch/notes")"
  for deployment in llama-verifier llama-proposer-suffix; do
    [[ $(num_ready $deployment) == 1 ]] || fail "$deployment is not ready"
    expect_num 1 kubectl get endpointslice -l "kubernetes.io/service-name=$deployment" -o name
  done
  [[ $(kubectl get service llama-proposer-suffix -o 'jsonpath={.spec.clusterIP}') == None ]] || fail "not headless"
  # The strategy of the group changes, then the pod that has the snapshot is replaced.
  for interval in 5m 6m; do
    helm upgrade llama "$chart" --set model.claim=weights --set proposers.suffix.snapshotClaim=memory \
      --set proposers.suffix.flags.suffix_snapshot_interval=$interval --wait --timeout 2m >/dev/null || fail "no snapshot"
  done
  expect_num 1 kubectl get pods -l foretoken/proposer=suffix -o name
  remove_release
}

# With everything that the definitions of the CRDs allow to check.
install_everything() {
  [[ -d $crds ]] || { echo "left out, without definitions of CRDs: an installation with everything"; return; }
  kubectl create priorityclass high --value=1000 >/dev/null
  kubectl create -f - >/dev/null <<YAML
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: { name: nvidia }
handler: nvidia
YAML
  kubectl label node --all pool=gpus >/dev/null
  helm install llama "$chart" -f "$root/tests/deploy/values/everything.yaml" --set verifier.gpus=2 --set verifier.service.type=ClusterIP \
    --wait --timeout 2m >/dev/null || fail "an installation with everything fails"
  expect_num 2 kubectl get scaledobject -o name
  expect_num 5 kubectl get certificate -o name
  expect_num 2 kubectl get podmonitor -o name
  expect_num 1 kubectl get prometheusrule -o name
  # As cert-manager does, which is not here.
  kubectl create secret generic llama-verifier-tls >/dev/null
  kubectl get certificate llama-verifier -o go-template='{{range $k, $v := .spec.secretTemplate.labels}}{{$k}}={{$v}} {{end}}' |
    xargs kubectl label secret llama-verifier-tls >/dev/null
  remove_release
  helm template pool "$chart" -f "$root/tests/deploy/values/gpu.yaml" --kube-version="$KUBERNETES" |
    kubectl create --dry-run=server -f - >"$scratch/pool" ||
    fail "an installation with an InferencePool is refused"
  grep -q '^inferencepool.* created' "$scratch/pool" || fail "no InferencePool: $(<"$scratch/pool")"
}

walk_the_newcomers_path() {
  local commands
  commands=$(commands_of_the_page "In a cluster")
  (($(wc -l <<<"$commands") >= 8)) || fail "docs/operating.md has no commands"
  # As a storage class with a provisioner does, which is not here.
  kubectl create -f - >/dev/null <<YAML
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: shared, annotations: { storageclass.kubernetes.io/is-default-class: "true" } }
provisioner: example.com/shared
YAML
  create_volume any 100Gi shared
  # There are no containers, so nothing is built and nothing can be copied into one.
  docker() { [[ -f deploy/images/Dockerfile ]]; }
  kubectl() {
    if [[ $3 == cp ]]; then
      [[ -f $4/config.json && $(command kubectl "$1" "$2" get pod "${5%%:*}" -o 'jsonpath={.status.phase}') == Running ]]
    else
      command kubectl "$@"
    fi
  }
  export -f docker kubectl
  while read -r command; do
    (cd "$root" && bash -c "$command") >"$scratch/path.log" 2>&1 || fail "$command: $(<"$scratch/path.log")"
  done <<<"$commands"
  unset -f docker kubectl
  kubectl delete storageclass shared >/dev/null
}

upgrade_and_roll_back() {
  local first options=(--set model.claim=weights --set verifier.replicas=2 --set proposers.suffix.replicas=2
    --set proposers.draft.method=draft --set proposers.draft.model.claim=drafts --set proposers.draft.device=cuda
    --set verifier.autoscaling.kind=none --set proposers.ngram.method=ngram --set proposers.ngram.autoscaling.kind=hpa)
  helm install llama "$chart" "${options[@]}" --wait --timeout 2m >/dev/null || fail "the installation fails"
  first=$(kubectl get pods -l app.kubernetes.io/component=verifier -o name | sort)
  [[ $(kubectl get hpa llama-proposer-ngram -o 'jsonpath={.spec.scaleTargetRef.name}') == llama-proposer-ngram ]] || fail "no HPA"

  while_ready llama-verifier 2 helm upgrade llama "$chart" "${options[@]}" --set verifier.flags.max_queued_requests=40 \
    --wait --timeout 2m || fail "an upgrade fails: $(<"$scratch/command.log")"
  [[ $(kubectl get pods -l app.kubernetes.io/component=verifier -o name | sort) != "$first" ]] || fail "the upgrade changed no pod"
  kubectl get deployment llama-verifier -o yaml | grep -q -- '--max_queued_requests=40' || fail "the flag is not there"

  # No node fits, so the new pod waits, and the old ones go on.
  while_ready llama-verifier 2 helm upgrade llama "$chart" "${options[@]}" --set verifier.pod.nodeSelector.pool=none \
    --wait --timeout 10s && fail "an upgrade that cannot succeed says that it did"
  helm history llama | tail -n 1 | grep -q failed || fail "$(helm history llama)"
  while_ready llama-verifier 2 helm rollback llama 2 --wait --timeout 2m || fail "a rollback fails: $(<"$scratch/command.log")"
  [[ $(kubectl get deployment llama-verifier -o yaml) == *--max_queued_requests=40* ]] || fail "the rollback undid too much"
  [[ $(kubectl get deployment llama-verifier -o yaml) != *'pool: none'* ]] || fail "the rollback changed nothing"

  while_ready llama-verifier 2 helm upgrade llama "$chart" "${options[@]}" --set verifier.autoscaling.kind=hpa --wait --timeout 2m ||
    fail "turning an autoscaler on fails: $(<"$scratch/command.log")"
  [[ $(kubectl get deployment llama-verifier -o 'jsonpath={.spec.replicas}') == 2 ]] || fail "the autoscaler changed the number of pods"
  undo_under_an_autoscaler
  helm upgrade llama "$chart" "${options[@]}" --wait --timeout 2m >/dev/null || fail "turning an autoscaler off fails"

  helm upgrade llama "$chart" "${options[@]}" --set verifier.replicas=-1 >"$scratch/refused" 2>&1 && fail "nonsense was taken"
  grep -q 'replicas' "$scratch/refused" || fail "nonsense is not named: $(<"$scratch/refused")"
}

# As docs/operating.md says. The autoscaler of the verifier is on; `options` have it off.
undo_under_an_autoscaler() {
  local undo revision spec
  undo=$(commands_of_the_page Upgrades)
  revision=$(helm history llama --max 1 | awk 'END { print $1 }')
  [[ $undo == *--revision=1\ * ]] || fail "docs/operating.md does not say how to undo an upgrade: $undo"
  kubectl scale deployment llama-verifier --replicas=3 >/dev/null # as an autoscaler does
  helm upgrade llama "$chart" "${options[@]}" --set verifier.autoscaling.kind=hpa --set verifier.flags.max_queued_requests=50 \
    --wait --timeout 2m >/dev/null || fail "an upgrade under an autoscaler fails"
  [[ $(kubectl get deployment llama-verifier -o 'jsonpath={.spec.replicas}') == 3 ]] || fail "an upgrade changed the number of pods"
  undo=${undo//-n models /}
  (cd "$root" && bash -o pipefail -c "${undo/--revision=1/--revision=$revision}") >"$scratch/undo.log" 2>&1 ||
    fail "$undo: $(<"$scratch/undo.log")"
  spec=$(kubectl get deployment llama-verifier -o yaml) || fail "there is no deployment after the undo"
  [[ $spec != *--max_queued_requests=50* ]] || fail "nothing was undone"
  [[ $(kubectl get deployment llama-verifier -o 'jsonpath={.spec.replicas}') == 3 ]] || fail "undoing it changed the number of pods"
}

# Both verifiers on one node. While no other node takes a successor, the budget lets only one of them go.
drain_a_node() {
  local node
  kubectl cordon node-b node-c >/dev/null
  kubectl delete pods -l app.kubernetes.io/component=verifier --wait >/dev/null
  kubectl wait --for=condition=Ready pod -l app.kubernetes.io/component=verifier --timeout=1m >/dev/null
  node=$(kubectl get pods -l app.kubernetes.io/component=verifier -o 'jsonpath={.items[*].spec.nodeName}')
  [[ $node == "node-a node-a" ]] || fail "expected both verifiers on node-a, got $node"
  wait_for bash -c '[[ $(kubectl get pdb llama-verifier -o jsonpath={.status.disruptionsAllowed}) == 1 ]]'
  while_ready llama-verifier 1 kubectl drain node-a --ignore-daemonsets --delete-emptydir-data --timeout=15s &&
    fail "the node is drained although no other node takes its pods"
  grep -q "Cannot evict pod as it would violate the pod's disruption budget" "$scratch/command.log" ||
    fail "the budget held nothing back: $(<"$scratch/command.log")"
  kubectl uncordon node-b node-c >/dev/null
  while_ready llama-verifier 1 kubectl drain node-a --ignore-daemonsets --delete-emptydir-data --timeout=2m ||
    fail "the node cannot be drained: $(<"$scratch/command.log")"
  kubectl uncordon node-a >/dev/null
}

(build_tools) || exit $?
# An API server without etcd goes on asking for it for minutes.
trap 'kill -9 "${pids[@]}" 2>/dev/null; end_all' EXIT
start_cluster
walk_the_newcomers_path
install_minimal
install_everything
upgrade_and_roll_back
drain_a_node
remove_release
echo "installed, upgraded, failed, rolled back, drained and removed: Kubernetes $KUBERNETES, Helm $HELM"
