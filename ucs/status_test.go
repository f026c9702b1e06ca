package ucs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStatusNames(t *testing.T) {
	assert.Equal(t, "ucs.NoResource", fmt.Sprintf("%#v", NoResource))
	assert.Equal(t, "ucs.Status(200)", fmt.Sprintf("%#v", Status(200)))
	assert.Equal(t, "no resource, status 200", fmt.Sprintf("%v, %v", NoResource, Status(200)))
	seen := map[string]Status{}
	for s := range numStatus {
		for _, name := range []string{s.String(), s.GoString()} {
			assert.NotContains(t, seen, name)
			assert.NotContains(t, []string{"", "ucs."}, name, "status %d", uint8(s))
			seen[name] = s
		}
		assert.Equal(t, s == OK, s.Err() == nil)
	}
}
