// This program makes the PrometheusRule of the Kubernetes manifests of the alerts
// for Prometheus, so that both are the same:
//
//	../prometheus/alerts.yml ─▶ monitoring/prometheusrule.yaml
package main

import (
	"fmt"
	"os"
	"strings"
)

//go:generate go run . ../../prometheus/alerts.yml ../monitoring/prometheusrule.yaml

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("give the file of the alerts and the one to write; %d arguments were given", len(args))
	}
	alerts, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read the alerts: %w", err)
	}
	rule, err := prometheusRule(string(alerts))
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[1], []byte(rule), 0o644); err != nil {
		return fmt.Errorf("write the rule: %w", err)
	}
	return nil
}

const head = `# Generated from deploy/prometheus/alerts.yml by go generate ./deploy/...; change that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: brim
  labels: {app.kubernetes.io/name: brim}
spec:
`

// prometheusRule puts what stands under groups under a rule's spec. What is
// above are comments about the file.
func prometheusRule(alerts string) (string, error) {
	const groups = "groups:\n"
	at := strings.Index("\n"+alerts, "\n"+groups)
	if at < 0 {
		return "", fmt.Errorf("find the alerts: there is no line %q", strings.TrimSpace(groups))
	}
	var b strings.Builder
	b.WriteString(head)
	for line := range strings.Lines(alerts[at:]) {
		if strings.TrimSpace(line) != "" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String(), nil
}
