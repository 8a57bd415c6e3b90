{{/*
What the verifier and a proposer group have alike: a Deployment, a Service, a disruption budget, an account and, if
asked for, an autoscaler. Takes what foretoken.pod takes, and `metrics`, the autoscaler's signals.
*/}}
{{- define "foretoken.workload" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
spec:
  {{- if not (include "foretoken.hasAutoscaler" .spec) }}
  replicas: {{ .spec.replicas }}
  {{- else }}
  {{- $scaling := .spec.autoscaling }}
  {{- with lookup "apps/v1" "Deployment" .root.Release.Namespace .name }}
  {{- /* As it is; without this line an upgrade could go back to one pod. A HorizontalPodAutoscaler ignores a Deployment
         with 0 pods, so it gets its fewest. KEDA leaves 0 by itself, unless it is paused there. */}}
  replicas: {{ eq $scaling.kind "hpa" | ternary (max .spec.replicas $scaling.minReplicas) .spec.replicas }}
  {{- end }}
  {{- end }}
  {{- if .spec.snapshotClaim }}
  # One process at a time has the snapshot open, so a new pod beside the old one would never be ready.
  strategy: { type: Recreate }
  {{- else if eq .spec.device "cuda" }}
  # A pod in addition may find no GPU, and then the update would never end.
  strategy: { rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } }
  {{- else }}
  strategy: { rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }
  {{- end }}
  {{- $minutes := add 5 .spec.startupMinutes }}
  {{- range include "foretoken.downloads" . | fromJsonArray }}
  {{- $minutes = add $minutes .from.download.minutes }}
  {{- end }}
  progressDeadlineSeconds: {{ mul 60 $minutes }}
  selector: { matchLabels: {{ include "foretoken.selector" . }} }
  template:
    {{- include "foretoken.pod" . | nindent 4 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector: { matchLabels: {{ include "foretoken.selector" . }} }
---
apiVersion: v1
kind: Service
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
  {{- with .service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if eq .service.type "Headless" }}
  clusterIP: None # callers connect to every pod
  {{- else }}
  type: {{ .service.type }}
  {{- end }}
  selector: {{ include "foretoken.selector" . }}
  ports: [{ name: grpc, port: {{ include "foretoken.port" . }}, targetPort: grpc, appProtocol: {{ ternary "https" "kubernetes.io/h2c" .root.Values.tls.enabled }} }]
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
spec:
  podSelector: { matchLabels: {{ include "foretoken.selector" . }} }
  policyTypes: [Ingress]
  ingress:
    - ports: [{ port: grpc }]
      from: {{ .callers }}
    {{- with .root.Values.networkPolicy.metrics }}
    - ports: [{ port: metrics }]
      from: {{ toJson . }}
    {{- end }}
    - ports: [{ port: health }] # kubelets, which no selector can name
{{- end }}
{{- if and .model .model.download.url }}
---
{{ include "foretoken.downloadScript" . }}
{{- end }}
{{- end }}
