{{/*
Every template takes what it needs in a dict: `root` is the chart's context, `name` the object's name, `component` is
verifier or proposer, `group` the key of a proposer group, `spec` the values of the verifier or of the group.
*/}}

{{/* The name of this installation, with which the names of its objects begin. Its pods have it as a label. */}}
{{- define "foretoken.name" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- define "foretoken.verifier" -}}
{{ include "foretoken.name" . }}-verifier
{{- end }}

{{/* The name of a proposer group's objects, of the list (context, group). */}}
{{- define "foretoken.proposer" -}}
{{ include "foretoken.name" (index . 0) }}-proposer-{{ index . 1 }}
{{- end }}

{{/* The labels by which a Service and others find pods, in one line. They never change. */}}
{{- define "foretoken.selector" -}}
{{- $labels := dict "app.kubernetes.io/name" "foretoken" "app.kubernetes.io/instance" (include "foretoken.name" .root) "app.kubernetes.io/component" .component -}}
{{- with .group }}{{ $_ := set $labels "foretoken/proposer" . }}{{ end -}}
{{ toJson $labels }}
{{- end }}

{{/* Helm itself adds app.kubernetes.io/managed-by. */}}
{{- define "foretoken.labels" -}}
{{ include "foretoken.selector" . | fromJson | toYaml }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "foretoken.metadata" -}}
name: {{ toYaml .name }}
labels:
  {{- include "foretoken.labels" . | nindent 2 }}
{{- end }}

{{/* The image of the verifier or of a proposer; the one for GPUs has the suffix -cuda. */}}
{{- define "foretoken.image" -}}
{{- $image := .root.Values.image -}}
{{- if .spec.image -}}
{{ .spec.image }}
{{- else -}}
{{ with $image.registry }}{{ . }}/{{ end }}foretoken-{{ .component }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ if eq .spec.device "cuda" }}-cuda{{ end }}
{{- end -}}
{{- end }}

{{/* The secret with the certificate of a component. */}}
{{- define "foretoken.certificate" -}}
{{- if .root.Values.tls.issuer.name -}}
{{ .name }}-tls
{{- else -}}
{{ index .root.Values.tls.secrets .component }}
{{- end -}}
{{- end }}

{{- define "foretoken.port" -}}
{{ ternary 50051 50052 (eq .component "verifier") }}
{{- end }}

{{/*
Whether a proposer's method has a model of its own, whether it reads the verifier's, too, and whether it leaves a projection
for verifiers. All take the method.
*/}}
{{- define "foretoken.hasModel" -}}
{{ if or (eq . "draft") (include "foretoken.readsTarget" .) }}true{{ end }}
{{- end }}

{{- define "foretoken.readsTarget" -}}
{{ if has . (list "eagle3" "dflash" "eagle" "medusa" "mlp_speculator") }}true{{ end }}
{{- end }}

{{- define "foretoken.hasProjection" -}}
{{ if has . (list "eagle3" "dflash") }}true{{ end }}
{{- end }}

{{/* Whether a proposer's method has a flag, of the list (method, flag). A proposer refuses flags of other methods. */}}
{{- define "foretoken.hasFlag" -}}
{{- $method := index . 0 -}}
{{- $flag := index . 1 -}}
{{- $common := list "log_level" "max_context_tokens" "max_sessions" "max_stream_share" "max_streams" "max_total_tokens" "max_tree_nodes" "tls_refresh" -}}
{{- if or (has $flag $common) (hasPrefix (printf "%s_" $method) $flag) -}}
true
{{- else if eq $flag "feature_layers" -}}
{{ include "foretoken.hasProjection" $method }}
{{- else if eq $flag "expert_memory_mb" -}}
{{ if eq $method "draft" }}true{{ end }}
{{- else if eq $flag "try_on_target" -}}
{{ include "foretoken.readsTarget" $method }}
{{- else if not (or (hasPrefix "ngram_" $flag) (hasPrefix "suffix_" $flag)) -}}
{{ include "foretoken.hasModel" $method }}
{{- end -}}
{{- end }}

{{/* Whether a pod has the volume of projections. Takes what foretoken.pod takes. */}}
{{- define "foretoken.sharesProjections" -}}
{{ if and .root.Values.projectionClaim (or (eq .component "verifier") (include "foretoken.hasProjection" .spec.method)) }}true{{ end }}
{{- end }}

{{/*
A proposer group with its defaults, of the list (context, values of the group). Helm merges values.yaml only into keys that
it has, and the groups' names are the user's, so the defaults of a group are under `proposerDefaults`. A map with keys of
the user's replaces the default's. So does a source of the model. A method without a model takes no model and no device
from the defaults, and no method takes flags of other methods from them.
*/}}
{{- define "foretoken.group" -}}
{{- $given := index . 1 -}}
{{- $group := deepCopy (index . 0).Values.proposerDefaults -}}
{{- range $key, $value := $given.pod }}
{{- if kindIs "map" $value }}{{ $_ := set $group.pod $key dict }}{{ end }}
{{- end }}
{{- with $given.model }}
{{- if or (hasKey . "claim") (hasKey . "volume") }}
{{- $_ := set $group.model "claim" "" }}
{{- $_ := set $group.model "volume" dict }}
{{- end }}
{{- if hasKey (.download | default dict) "files" }}{{ $_ := set $group.model.download "files" dict }}{{ end }}
{{- end }}
{{- if not (include "foretoken.hasModel" $given.method) }}
{{- $_ := set $group "device" "cpu" }}
{{- $_ := set $group "model" dict }}
{{- end }}
{{- range $flag := keys ($group.flags | default dict) }}
{{- if not (include "foretoken.hasFlag" (list $given.method $flag)) }}{{ $_ := unset $group.flags $flag }}{{ end }}
{{- end }}
{{ mergeOverwrite $group $given | toYaml }}
{{- end }}

{{/* Whether a group is to have pods, of its values with the defaults. */}}
{{- define "foretoken.hasPods" -}}
{{ if or .replicas (include "foretoken.hasAutoscaler" .) }}true{{ end }}
{{- end }}

{{- define "foretoken.hasAutoscaler" -}}
{{ if ne .autoscaling.kind "none" }}true{{ end }}
{{- end }}
