package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEachWayToInsertFollowsBrimAsOften(t *testing.T) {
	t.Parallel()
	after := map[string]int{}
	for number := range 4 {
		order := linesOrder(number, "brim", "raw", "encoded")
		assert.ElementsMatch(t, []string{"brim", "raw", "encoded"}, order)
		if i := slices.Index(order, "brim"); i+1 < len(order) {
			after[order[i+1]]++
		}
	}
	assert.Equal(t, map[string]int{"raw": 1, "encoded": 1}, after)
}

func TestPaceTellsTheRealFleet(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "event time runs 1,500x as fast as the clock, an hourly window lasts 2.4 s; a fleet in real time with this rate has 1.5 M sensors at 10s", paceRemark(150_000))
}
