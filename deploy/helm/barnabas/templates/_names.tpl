{{- /* The address of ZooKeeper for the brokers. */ -}}
{{- define "barnabas.zookeeper" -}}
{{- $name := printf "%s-zookeeper" .Release.Name -}}
{{- if .Values.zookeeper.connect -}}
{{ .Values.zookeeper.connect }}
{{- else if eq (int .Values.zookeeper.servers) 1 -}}
{{ $name }}:2181
{{- else -}}
{{- range $index := until (int .Values.zookeeper.servers) -}}
{{ if $index }},{{ end }}{{ $name }}-{{ $index }}.{{ $name }}:2181
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The servers of ZooKeeper for each other. */ -}}
{{- define "barnabas.servers" -}}
{{- $name := printf "%s-zookeeper" .Release.Name -}}
{{- range $index := until (int .Values.zookeeper.servers) -}}
{{ if $index }} {{ end }}server.{{ add1 $index }}={{ $name }}-{{ $index }}.{{ $name }}:2888:3888;2181
{{- end -}}
{{- end -}}

{{- /* The preference for nodes without another pod of the same app. */ -}}
{{- define "barnabas.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {app: {{ . }}}
{{- end -}}
