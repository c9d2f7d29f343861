//go:build !race

package brimtest

// Race is whether the tests look for data races.
const Race = false
