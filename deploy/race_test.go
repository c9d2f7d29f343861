//go:build race

package deploy_test

const raceEnabled = true
