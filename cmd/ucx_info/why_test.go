package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The paths of messages over shm follow the settings, and each names its reason.
func TestWhyPaths(t *testing.T) {
	const title = "# How messages get to this peer over shm/memory, by the memory that they are sent from\n"
	assert.NotContains(t, info(t, "--why"), "How messages get", "a worker with itself has one path")
	assert.Contains(t, info(t, "--why", "-P", "intra"), title)
	t.Setenv("UCX_SHM_SINGLE_COPY", "mapped")
	t.Setenv("UCX_SHM_FETCH_MAPPED_THRESH", "5000")
	out := info(t, "--why", "-P", "intra")
	for _, line := range []string{
		"tag heap      0..65536       at once, through the ring: UCX_RNDV_THRESH=auto (default)",
		"tag heap      65537..(inf)   through the ring, copied by the sender and by the receiver: UCX_SHM_SINGLE_COPY=mapped (environment UCX_SHM_SINGLE_COPY)",
		"tag allocated 0..5000        at once, through the ring: UCX_SHM_FETCH_MAPPED_THRESH=5000 (environment UCX_SHM_FETCH_MAPPED_THRESH)",
		"tag allocated 5001..(inf)    copied by the receiver from its mapping of the memory, and by the sender too while it polls: UCX_SHM_SINGLE_COPY=mapped (environment UCX_SHM_SINGLE_COPY)",
	} {
		assert.Contains(t, out, "#     "+line+"\n")
	}
	t.Setenv("UCX_RNDV_THRESH", "100")
	t.Setenv("UCX_SHM_SINGLE_COPY", "none")
	var doc struct{ Refused struct{ Messages []pathView } }
	require.NoError(t, json.Unmarshal([]byte(info(t, "--why", "--json", "-P", "intra")), &doc))
	const reason = "UCX_RNDV_THRESH=100 (environment UCX_RNDV_THRESH)"
	require.Len(t, doc.Refused.Messages, 12)
	assert.Equal(t, pathView{"tag", "heap", 0, 100, "at once, through the ring", reason}, doc.Refused.Messages[0])
	assert.Equal(t, pathView{
		"tag", "heap", 1024, 0, "through the ring, copied by the sender and by the receiver",
		"UCX_SHM_SINGLE_COPY=none (environment UCX_SHM_SINGLE_COPY)",
	}, doc.Refused.Messages[2])
	t.Setenv("UCX_RNDV_THRESH", "inf")
	doc.Refused.Messages = nil
	require.NoError(t, json.Unmarshal([]byte(info(t, "--why", "--json", "-P", "intra")), &doc))
	assert.Len(t, doc.Refused.Messages, 4, "all are eager")
}
