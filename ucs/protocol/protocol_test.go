package protocol

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

var format = Format{Name: "sample message", Version: 3, Features: [numFeatures]string{1: "known one", 5: "known other"}}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name     string
		version  uint8
		features Features
		want     string
	}{
		{"this version", 3, 0, ""},
		{"known required", 3, 1 << 1, ""},
		{"known optional", 3, 1 << 5, ""},
		{"unknown optional", 3, 0xf0, ""},
		{"unknown required", 3, 1<<0 | 1<<1 | 1<<3, "sample message of version 3 requires feature 0, feature 3, which this program (version 3) does not know"},
		{"older", 2, 0, "sample message has version 2, this program knows version 3: run one release of goucx on both sides"},
		{"newer, features mean nothing", 4, 0xff, "sample message has version 4, this program knows version 3: run one release of goucx on both sides"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := format.Check(c.version, c.features)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
			assert.ErrorIs(t, err, ucs.ErrUnsupported)
		})
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = format.Check(3, 0xf2) }))
}

func TestRefusedByPeer(t *testing.T) {
	err := &Error{Format: &format, Version: 3, Features: 1<<1 | 1<<2, Local: true}
	assert.EqualError(t, err, "sample message of version 3 requires feature 1 (known one), feature 2, which the peer (version 3) does not know")
}
