{{/*
The pod of the verifier or of a proposer, for a Deployment's `template`. Besides the usual keys: `arguments`, the flags
of this component as a YAML list, `model`, the values of its model or nothing, and `target`, the values of the verifier's
model where a drafter reads its files, or nothing.
*/}}
{{- define "foretoken.pod" -}}
{{- $pod := .spec.pod -}}
metadata:
  labels:
    {{- include "foretoken.selector" . | fromJson | toYaml | nindent 4 }}
    {{- $labels := deepCopy ($pod.labels | default dict) }}
    {{- if and (eq .component "verifier") .root.Values.inferencePool.enabled }}
    {{- /* The metrics have vLLM's names, too. */}}
    {{- $labels = merge $labels (dict "llm-d.ai/engine-type" "vllm") }}
    {{- end }}
    {{- with $labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $annotations := deepCopy ($pod.annotations | default dict) }}
  {{- $downloads := include "foretoken.downloads" . | fromJsonArray }}
  {{- range $downloads }}
  {{- $annotations = merge $annotations (dict (printf "checksum/%s" .place) (toYaml .from.download | sha256sum)) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ .name }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ add .root.Values.preStopSeconds .spec.drainSeconds 10 }}
  securityContext: {{ include "foretoken.podSecurity" . }}
  {{- with $pod.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with include "foretoken.placement" . }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  topologySpreadConstraints:
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ $key }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: { matchLabels: {{ include "foretoken.selector" $ }} }
    {{- end }}
  {{- with $downloads }}
  initContainers:
    {{- range . }}
    {{- include "foretoken.downloader" (dict "root" $.root "download" .) | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "foretoken.image" . | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- .arguments | nindent 8 }}
        {{- include "foretoken.commonArguments" . | nindent 8 }}
      {{- with include "foretoken.environment" . }}
      {{- . | nindent 6 }}
      {{- end }}
      ports:
        - { name: grpc, containerPort: {{ include "foretoken.port" . }} }
        - { name: health, containerPort: 50061 }
        - { name: metrics, containerPort: 9100 }
      startupProbe: { grpc: { port: 50061 }, periodSeconds: 5, failureThreshold: {{ mul .spec.startupMinutes 12 }} }
      readinessProbe: { grpc: { port: 50061 }, periodSeconds: 5, failureThreshold: 2 }
      # Two minutes, because a restart loads the model again.
      livenessProbe: { grpc: { port: 50061 }, periodSeconds: 15, timeoutSeconds: 5, failureThreshold: 8 }
      # Until clients have heard that this pod is going.
      lifecycle: { preStop: { sleep: { seconds: {{ .root.Values.preStopSeconds }} } } }
      resources:
        {{- include "foretoken.resources" . | nindent 8 }}
      securityContext: {{ include "foretoken.restricted" . }}
      {{- include "foretoken.mounts" . | nindent 6 }}
  {{- include "foretoken.volumes" . | nindent 2 }}
{{- end }}

{{/* The right to pull the images, and the nodes that a pod may run on. */}}
{{- define "foretoken.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- range $field := list "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
{{- with index $.spec.pod $field }}
{{ $field }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the namespace label pod-security.kubernetes.io/enforce=restricted asks of a pod and of a container. */}}
{{- define "foretoken.podSecurity" -}}
{{- $user := int64 .root.Values.podUser -}}
{ runAsNonRoot: true, {{ if $user }}runAsUser: {{ $user }}, runAsGroup: {{ $user }}, fsGroup: {{ $user }}, fsGroupChangePolicy: OnRootMismatch, {{ end }}seccompProfile: { type: RuntimeDefault } }
{{- end }}

{{/* The same of a container, with a read-only root. */}}
{{- define "foretoken.restricted" -}}
{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }
{{- end }}

{{/* The flags that the verifier and the proposers have in common. */}}
{{- define "foretoken.commonArguments" -}}
{{- $tls := .root.Values.tls -}}
- --listen=0.0.0.0:{{ include "foretoken.port" . }}
- --health_listen=0.0.0.0:50061
- --metrics_listen=0.0.0.0:9100
- --log_format=json
- --drain_grace={{ .spec.drainSeconds }}s
{{- if $tls.enabled }}
- --tls_certificate=/tls/tls.crt
- --tls_key=/tls/tls.key
{{- else }}
- --insecure
{{- end }}
{{- if eq .spec.device "cuda" }}
- --device=cuda
- --tensor_parallel={{ .spec.gpus }}
{{- end }}
{{- range $flag, $value := .spec.flags }}
- {{ printf "--%s=%s" $flag (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- end }}

{{/*
The variables of a container, as a YAML list. `given` are the user's. `first` and `last` are the chart's, without the ones
that the user gives, too. A variable may refer to the ones before it.
*/}}
{{- define "foretoken.variables" -}}
{{- $names := list -}}
{{- range .given }}{{ $names = append $names .name }}{{ end -}}
{{- $variables := list -}}
{{- range .first }}{{ if not (has .name $names) }}{{ $variables = append $variables . }}{{ end }}{{ end -}}
{{- $variables = concat $variables (.given | default list) -}}
{{- range .last }}{{ if not (has .name $names) }}{{ $variables = append $variables . }}{{ end }}{{ end -}}
{{- with $variables }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- define "foretoken.environment" -}}
{{- $tracing := .root.Values.tracing -}}
{{- $first := list -}}
{{- $last := list -}}
{{- if $tracing.endpoint -}}
{{- $first = list
  (dict "name" "OTEL_EXPORTER_OTLP_ENDPOINT" "value" $tracing.endpoint)
  (dict "name" "OTEL_EXPORTER_OTLP_PROTOCOL" "value" $tracing.protocol)
  (dict "name" "OTEL_TRACES_SAMPLER" "value" "parentbased_traceidratio")
  (dict "name" "OTEL_TRACES_SAMPLER_ARG" "value" (toString $tracing.ratio)) -}}
{{- range $name, $path := dict "POD_NAME" "metadata.name" "NODE_NAME" "spec.nodeName" -}}
{{- $first = append $first (dict "name" $name "valueFrom" (dict "fieldRef" (dict "fieldPath" $path))) -}}
{{- end -}}
{{- $attributes := printf "k8s.namespace.name=%s,k8s.pod.name=$(POD_NAME),k8s.node.name=$(NODE_NAME)" .root.Release.Namespace -}}
{{- $last = list (dict "name" "OTEL_RESOURCE_ATTRIBUTES" "value" $attributes) -}}
{{- end -}}
{{- with include "foretoken.variables" (dict "first" $first "given" .spec.pod.env "last" $last) -}}
env:
  {{- . | nindent 2 }}
{{- end -}}
{{- end }}

{{/* A GPU cannot be shared, so its limit is its request. */}}
{{- define "foretoken.resources" -}}
{{- $resources := deepCopy (.spec.pod.resources | default dict) -}}
{{- if eq .spec.device "cuda" -}}
{{- $resources = merge (dict "limits" (dict "nvidia.com/gpu" .spec.gpus)) $resources -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- define "foretoken.hasSharedMemory" -}}
{{- if and (eq .spec.device "cuda") (gt (int .spec.gpus) 1) -}}true{{- end -}}
{{- end }}

{{/* The volume at /target. A pod that names one claim in two volumes may wait for the second one forever. */}}
{{- define "foretoken.targetVolume" -}}
{{ if and .model.claim (eq .model.claim .target.claim) }}model{{ else }}target{{ end }}
{{- end }}

{{- define "foretoken.mounts" -}}
volumeMounts:
  - { name: tmp, mountPath: /tmp }
  {{- if .model }}
  - { name: model, mountPath: /model, readOnly: true }
  {{- end }}
  {{- if .target }}
  - { name: {{ include "foretoken.targetVolume" . }}, mountPath: /target, readOnly: true }
  {{- end }}
  {{- if .root.Values.tls.enabled }}
  - { name: tls, mountPath: /tls, readOnly: true }
  {{- end }}
  {{- if and (eq .component "verifier") .root.Values.clientTokens.secret }}
  - { name: tokens, mountPath: /tokens, readOnly: true }
  {{- end }}
  {{- if include "foretoken.sharesProjections" . }}
  - { name: projections, mountPath: /projections, readOnly: {{ eq .component "verifier" }} }
  {{- end }}
  {{- if .spec.snapshotClaim }}
  - { name: snapshot, mountPath: /snapshot }
  {{- end }}
  {{- if include "foretoken.hasSharedMemory" . }}
  - { name: shared-memory, mountPath: /dev/shm }
  {{- end }}
{{- end }}

{{- define "foretoken.volumes" -}}
volumes:
  - name: tmp
    emptyDir: { sizeLimit: 64Mi }
  {{- with .model }}
  - name: model
    {{- if .claim }}
    persistentVolumeClaim: { claimName: {{ .claim | quote }} }
    {{- else if .volume }}
    {{- toYaml .volume | nindent 4 }}
    {{- else }}
    emptyDir: { sizeLimit: {{ .download.size | quote }} }
    {{- end }}
  {{- end }}
  {{- if and .target (eq (include "foretoken.targetVolume" .) "target") }}
  - name: target
    {{- if .target.claim }}
    persistentVolumeClaim: { claimName: {{ .target.claim | quote }}, readOnly: {{ empty .target.download.url }} }
    {{- else }}
    {{- toYaml .target.volume | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- range include "foretoken.downloads" . | fromJsonArray }}
  - name: {{ .name }}
    configMap: { name: {{ .script }} }
  {{- end }}
  {{- if .root.Values.tls.enabled }}
  - name: tls
    secret: { secretName: {{ include "foretoken.certificate" . | quote }} }
  {{- end }}
  {{- if and (eq .component "verifier") .root.Values.clientTokens.secret }}
  - name: tokens
    secret: { secretName: {{ .root.Values.clientTokens.secret | quote }} }
  {{- end }}
  {{- if include "foretoken.sharesProjections" . }}
  - name: projections
    persistentVolumeClaim: { claimName: {{ .root.Values.projectionClaim | quote }} }
  {{- end }}
  {{- if .spec.snapshotClaim }}
  - name: snapshot
    persistentVolumeClaim: { claimName: {{ .spec.snapshotClaim | quote }} }
  {{- end }}
  {{- if include "foretoken.hasSharedMemory" . }}
  - name: shared-memory
    emptyDir: { medium: Memory, sizeLimit: {{ .spec.sharedMemory | quote }} } # for NCCL
  {{- end }}
{{- end }}
