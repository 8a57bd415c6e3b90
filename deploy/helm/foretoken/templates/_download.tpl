{{/*
What a pod downloads before its service starts: its own model and, where it reads the verifier's, that one, too. Pods that
share a volume may all fill it at the same time. Takes what foretoken.pod takes. A JSON list of dicts: `name` of the container
and of the volume with the script, `place` where the model's volume is mounted, `volume` its name, `script` the name of the
ConfigMap, `from` the values of the model.
*/}}
{{- define "foretoken.downloads" -}}
{{- $downloads := list -}}
{{- if and .model .model.download.url -}}
{{- $downloads = append $downloads (dict "name" "download" "place" "model" "volume" "model" "script" (printf "%s-download" .name) "from" .model) -}}
{{- end -}}
{{- if and .target .target.download.url -}}
{{- $verifier := include "foretoken.verifier" .root -}}
{{- $downloads = append $downloads (dict "name" "download-target" "place" "target" "volume" (include "foretoken.targetVolume" . | trim) "script" (printf "%s-download" $verifier) "from" .target) -}}
{{- end -}}
{{- toJson $downloads -}}
{{- end }}

{{/* The init container of one of these downloads. */}}
{{- define "foretoken.downloader" -}}
{{- $downloader := .root.Values.downloader -}}
{{- with .download -}}
- name: {{ .name }}
  image: {{ $downloader.image | quote }}
  command: [sh, /download/download.sh]
  {{- $last := list
    (dict "name" "URL" "value" .from.download.url)
    (dict "name" "FOLDER" "value" (printf "/%s/%s" .place (regexReplaceAll "[^/]*[.]gguf$" .from.path "") | trimSuffix "/")) }}
  {{- with .from.download.tokenSecret }}
  {{- if .name }}
  {{- $last = append $last (dict "name" "TOKEN" "valueFrom" (dict "secretKeyRef" (dict "name" .name "key" .key))) }}
  {{- end }}
  {{- end }}
  env:
    {{- include "foretoken.variables" (dict "given" $downloader.env "last" $last) | nindent 4 }}
  resources:
    {{- toYaml $downloader.resources | nindent 4 }}
  securityContext: {{ include "foretoken.restricted" $ }}
  volumeMounts:
    - { name: {{ .volume }}, mountPath: /{{ .place }} }
    - { name: {{ .name }}, mountPath: /download, readOnly: true }
{{- end }}
{{- end }}

{{/* The ConfigMap with the script and the files of a component's own model. */}}
{{- define "foretoken.downloadScript" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "foretoken.metadata" (dict "root" .root "component" .component "group" .group "name" (printf "%s-download" .name)) | nindent 2 }}
data:
  download.sh: |
    {{- .root.Files.Get "files/download.sh" | nindent 4 }}
  SHA256SUMS: |
    {{- range $file, $sum := .model.download.files }}
    {{ $sum }}  {{ $file }}
    {{- end }}
{{- end }}
