package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/uct"
)

// A handler is told from others that wait meanwhile however deep it calls.
func TestInHandler(t *testing.T) {
	c, err := Open(Config{Providers: []uct.Component{self.Component()}})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	e, err := w.NewEndpoint(w.Address(), EndpointConfig{})
	require.NoError(t, err)
	depths := []int{0, 10, 60, 64, 65, 127, 200, 1000}
	var got []bool
	other := false
	require.NoError(t, w.HandleAM(1, func(*AM) {
		for _, n := range depths {
			got = append(got, deep(n))
		}
		done := make(chan bool)
		go func() { done <- inCallback() }()
		other = <-done
	}))
	e.AMSend(1, nil, nil)
	for len(got) == 0 {
		w.Progress()
	}
	for i, n := range depths {
		assert.True(t, got[i], "depth %d", n)
	}
	assert.False(t, other)
	assert.False(t, inCallback())
}

//go:noinline
func deep(n int) bool {
	if n == 0 {
		return inCallback()
	}
	return deep(n-1) && n > 0
}
