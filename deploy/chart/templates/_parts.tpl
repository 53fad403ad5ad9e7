{{- define "labels" -}}
app.kubernetes.io/name: exchequer
app.kubernetes.io/instance: {{ .release }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "url" -}}
{{- $db := .root.Values.database -}}
{{- $host := ternary (printf "%s-postgres" .root.Release.Name) $db.host .root.Values.embedded -}}
{{- $more := ternary "sslmode=disable" $db.parameters .root.Values.embedded -}}
postgresql+psycopg://{{ .user }}@{{ $host }}:{{ $db.port }}/{{ $db.name }}?password_file=/run/secrets/{{ .password }}&{{ $more }}
{{- end }}

{{- define "hardware" -}}
{{- $classes := dict -}}
{{- range .Values.workers }}{{ $_ := set $classes .class .gib }}{{ end -}}
{{ $classes | toJson }}
{{- end }}

{{- define "environment" -}}
{{- $root := .root -}}
- {name: EXCHEQUER_RUNS_AS, value: {{ .process }}}
- {name: DATABASE_URL, value: {{ include "url" (dict "root" $root "user" (printf "exchequer_%s" .process) "password" (printf "%s_password" .process)) | quote }}}
{{- if ne .process "signer" }}
{{- if $root.Values.embedded }}
- {name: BROKER_URL, value: "redis://{{ $root.Release.Name }}-valkey:6379/0?password_file=/run/secrets/broker_password"}
{{- else }}
{{- with $root.Values.broker }}
- {name: BROKER_URL, value: "{{ .scheme }}://{{ .host }}:{{ .port }}/0?password_file=/run/secrets/broker_password{{ with .parameters }}&{{ . }}{{ end }}"}
{{- end }}
{{- end }}
{{- end }}
- {name: EXCHEQUER_HOME, value: /var/lib/exchequer}
- {name: EXCHEQUER_KEYS, value: /run/secrets}
- {name: EXCHEQUER_LEDGER_LOG, value: {{ $root.Values.ledgerLog | quote }}}
{{- if not $root.Values.settings.EXCHEQUER_PUBLIC_LOG }}
- {name: EXCHEQUER_PUBLIC_LOG, value: /var/lib/exchequer/public-log}
{{- end }}
- {name: EXCHEQUER_HARDWARE, value: {{ include "hardware" $root | quote }}}
{{- if eq .process "web" }}
- {name: EXCHEQUER_PROBE_ADDRESS, value: "0.0.0.0:8751"}
{{- else }}
- {name: EXCHEQUER_ALIVE_FILE, value: /tmp/alive}
{{- end }}
{{- if has .process (list "worker" "checks") }}
- {name: EXCHEQUER_DATA_ROOTS, value: /data}
- {name: EXCHEQUER_MODEL_ROOTS, value: /models}
{{- end }}
{{- range $name, $value := $root.Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "closed" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "nobody" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: secrets, mountPath: /run/secrets, readOnly: true}
{{- if not .root.Values.embedded }}
- {name: authority, mountPath: /tls, readOnly: true}
{{- end }}
{{- if not (contains "://" .root.Values.ledgerLog) }}
- {name: storage, mountPath: {{ .root.Values.ledgerLog }}, subPath: ledger-log}
{{- end }}
{{- if not (contains "://" (.root.Values.settings.EXCHEQUER_PUBLIC_LOG | default "")) }}
- {name: storage, mountPath: /var/lib/exchequer/public-log, subPath: public-log, readOnly: {{ ne .process "signer" }}}
{{- end }}
{{- if not (contains "://" (.root.Values.settings.EXCHEQUER_SIGNED_LOGS_FOLDER | default "")) }}
- {name: storage, mountPath: /var/lib/exchequer/signed-logs, subPath: signed-logs, readOnly: {{ ne .process "signer" }}}
{{- end }}
{{- if ne .process "signer" }}
{{- if not (contains "://" (.root.Values.settings.EXCHEQUER_RESULTS_URL | default "")) }}
- {name: storage, mountPath: /var/lib/exchequer/results, subPath: results}
{{- end }}
{{- if not (contains "://" (.root.Values.settings.EXCHEQUER_UPLOADS_FOLDER | default "")) }}
- {name: storage, mountPath: /var/lib/exchequer/uploads, subPath: uploads, readOnly: {{ has .process (list "worker" "checks") }}}
{{- end }}
{{- end }}
{{- if has .process (list "worker" "checks") }}
- {name: data, mountPath: /data, readOnly: true}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- end }}

{{- define "volumes" -}}
- {name: tmp, emptyDir: {}}
- name: secrets
  secret: {secretName: {{ index .root.Values.secrets .process }}, defaultMode: 0440}
{{- if not .root.Values.embedded }}
- name: authority
  secret: {secretName: {{ .root.Values.secrets.authority }}}
{{- end }}
{{- if and (ne .process "owner") (contains "name: storage" (include "mounts" .)) }}
- name: storage
  persistentVolumeClaim: {claimName: {{ .root.Values.storage.claim }}}
{{- end }}
{{- if has .process (list "worker" "checks") }}
- name: data
  persistentVolumeClaim: {claimName: {{ .root.Values.data.claim }}, readOnly: true}
- name: models
  persistentVolumeClaim: {claimName: {{ .root.Values.models.claim }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "process" -}}
{{- $labels := dict "release" .root.Release.Name "name" .name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{- include "labels" $labels | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "labels" $labels | nindent 6 }}
  {{- if eq .process "signer" }}
  strategy: {type: Recreate}
  {{- end }}
  template:
    metadata:
      labels: {{- include "labels" $labels | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ ternary 600 60 (eq .process "worker") }}
      securityContext: {{- include "nobody" . | nindent 8 }}
      {{- with .values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .process }}
          image: {{ .image }}
          command: {{ .command | toJson }}
          env: {{- include "environment" . | nindent 12 }}
          {{- if eq .process "web" }}
          ports:
            - {name: http, containerPort: 8750}
            - {name: probes, containerPort: 8751}
          livenessProbe:
            httpGet: {path: /livez, port: probes}
            timeoutSeconds: 4
          readinessProbe:
            httpGet: {path: /readyz, port: probes}
            timeoutSeconds: 4
          {{- else }}
          {{- range $probe, $failures := dict "startupProbe" 30 "livenessProbe" 3 }}
          {{ $probe }}:
            exec: {command: [sh, -c, 'test -n "$(find /tmp/alive -mmin -1)"']}
            periodSeconds: 10
            failureThreshold: {{ $failures }}
          {{- end }}
          {{- end }}
          resources:
            {{- $resources := deepCopy .values.resources }}
            {{- if .values.gpus }}
            {{- $_ := set $resources.limits (.values.gpuResource | default "nvidia.com/gpu") .values.gpus }}
            {{- end }}
            {{- toYaml $resources | nindent 12 }}
          securityContext: {{- include "closed" . | nindent 12 }}
          volumeMounts: {{- include "mounts" . | nindent 12 }}
      volumes: {{- include "volumes" . | nindent 8 }}
{{- end }}
