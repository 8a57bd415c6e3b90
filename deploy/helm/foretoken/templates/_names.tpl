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
A proposer group with its defaults. Helm merges values.yaml only into keys that it has, and the groups' names are the
user's, so the defaults of a group are under `proposerDefaults`.
*/}}
{{- define "foretoken.group" -}}
{{ mergeOverwrite (deepCopy (index . 0).Values.proposerDefaults) (index . 1) | toYaml }}
{{- end }}

{{- define "foretoken.hasAutoscaler" -}}
{{ if ne .autoscaling.kind "none" }}true{{ end }}
{{- end }}
