package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListParser(t *testing.T) {
	checkParser(t, ListOf("transports"), []good[List]{
		{"all", List{items: []string{"all"}}, "all"},
		{"shm,self", List{items: []string{"shm", "self"}}, "shm,self"},
		{" shm , ,self,", List{items: []string{"shm", "self"}}, "shm,self"},
		{"^ud,rc*", List{items: []string{"ud", "rc*"}, negated: true}, "^ud,rc*"},
		{"^ ud", List{items: []string{"ud"}, negated: true}, "^ud"},
		{"", List{}, ""},
	}, "^", "^,", "a,^b", "^^a", "^all", "all,shm", "a\x00b")
}

func TestListMatch(t *testing.T) {
	cases := []struct {
		list      string
		yes, no   string // space-separated names
		unmatched string
	}{
		{"all", "shm rc anything", "", ""},
		{"", "", "shm", ""},
		{"shm,self", "shm self", "sh shmx rc", "self"},
		{"^shm", "self rc", "shm", ""},
		{"^rc*,ud", "shm", "rc rc_verbs ud", "rc* ud"},
		{"mlx5_*:1", "mlx5_0:1 mlx5_12:1", "mlx5_0:2 mlx4_0:1", "mlx5_*:1"},
		{"mlx5_[0-12]", "mlx5_0 mlx5_12", "mlx5_13 mlx5_01 mlx5_", "mlx5_[0-12]"},
		{"SHM", "SHM", "shm", "SHM"},
	}
	for _, c := range cases {
		t.Run(c.list, func(t *testing.T) {
			l, err := ListOf("names").Parse(c.list)
			require.NoError(t, err)
			for n := range strings.FieldsSeq(c.yes) {
				assert.True(t, l.Match(n), n)
			}
			for n := range strings.FieldsSeq(c.no) {
				assert.False(t, l.Match(n), n)
			}
			assert.Equal(t, c.unmatched, strings.Join(l.Unmatched([]string{"shm"}), " "))
		})
	}
}

func TestListAccessors(t *testing.T) {
	l, err := ListOf("names").Parse("^a,b")
	require.NoError(t, err)
	assert.True(t, l.Negated())
	assert.False(t, l.All())
	items := l.Items()
	assert.Equal(t, []string{"a", "b"}, items)
	items[0] = "changed"
	assert.Equal(t, "^a,b", l.String())
}

func TestGlob(t *testing.T) {
	cases := []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"**", "abc", true},
		{"a*c", "abbc", true},
		{"a*c", "abbcd", false},
		{"*b*", "abc", true},
		{"?", "", false},
		{"a?c", "abc", true},
		{"[abc]x", "bx", true},
		{"[abc]x", "dx", false},
		{"[a-c]", "b", true},
		{"[!a-c]", "b", false},
		{"[!a-c]", "d", true},
		{"[!a]", "", false},
		{"[0-3]*", "12", true},
		{"[8-12]", "10", true},
		{"[8-12]", "7", false},
		{"[8-12]", "010", false},
		{"[8-12]", "", false},
		{"x[8-12]y", "x9y", true},
		{"[abc", "[abc", true},
		{"[]", "[]", true},
		{"generic *", "generic arm", true},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, glob(c.pattern, c.s), "%q against %q", c.pattern, c.s)
	}
}

// A pattern of many stars must not take exponential time.
func TestGlobIsBounded(t *testing.T) {
	assert.False(t, glob(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 5000)))
}
