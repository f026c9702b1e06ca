package wireup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

type fakeComponent struct {
	uct.Component
	name    string
	aliases []string
}

func (c fakeComponent) Name() string      { return c.name }
func (c fakeComponent) Aliases() []string { return c.aliases }

var components = []uct.Component{
	fakeComponent{name: "self"},
	fakeComponent{name: "shm", aliases: []string{"sm", "mm", "posix"}},
	fakeComponent{name: "rc", aliases: []string{"ib"}},
	fakeComponent{name: "ud", aliases: []string{"ib"}},
}

func settings(t *testing.T, env ...string) *config.Set {
	s, err := loadSettings(env)
	require.NoError(t, err)
	return s
}

func TestSelectionTransports(t *testing.T) {
	for _, c := range []struct {
		tls  string
		want string // of self, shm, rc, ud: - none, c connect, a all
	}{
		{"all", "aaaa"},
		{"self", "a---"},
		{"shm", "-a--"},
		{"sm,self", "aa--"},
		{"mm", "-a--"},
		{"posix,self", "aa--"},
		{"ib", "--aa"},
		{"^ib", "aa--"},
		{"^sm", "a-aa"},
		{"^self,mm", "--aa"},
		{"rc,ud:aux", "--ac"},
		{"rc,ud:aux,ud", "--aa"},
		{"rc:aux,ib", "--aa"},
		{"sm,ib:aux", "-acc"},
		{"s*", "aa--"},
	} {
		t.Run(c.tls, func(t *testing.T) {
			sel, err := Select(settings(t, "UCX_TLS="+c.tls), components)
			require.NoError(t, err)
			var got []byte
			for _, comp := range components {
				u, reason := sel.Transport(comp.Name())
				got = append(got, "-ca"[u])
				assert.Equal(t, u == UseAll, reason == "", "a reason where not all")
				if u != UseAll {
					assert.Contains(t, reason, "UCX_TLS="+c.tls+" (environment UCX_TLS)")
				}
			}
			assert.Equal(t, c.want, string(got))
		})
	}
}

func TestSelectionDefaults(t *testing.T) {
	sel, err := Select(nil, components)
	require.NoError(t, err)
	u, reason := sel.Iface(uct.IfaceInfo{Transport: "rc", Device: "mlx5_0:1", Kind: uct.DeviceNet})
	assert.Equal(t, UseAll, u)
	assert.Empty(t, reason)
}

func TestSelectionUnknownTransport(t *testing.T) {
	for _, tls := range []string{"warp,sm", "^warp", "sm,warp:aux", "tcp,warp*"} {
		_, err := Select(settings(t, "UCX_TLS="+tls), components)
		require.Error(t, err)
		require.ErrorContains(t, err, `"warp`)
		require.ErrorContains(t, err, "setting UCX_TLS="+tls+" (environment UCX_TLS): ")
		assert.ErrorContains(t, err, "known are all, self, shm (sm, mm, posix), rc (ib), ud (ib)")
	}
}

// UCX's own transports select nothing and are no error.
func TestSelectionOfTransportsThatOnlyUCXHas(t *testing.T) {
	for _, c := range []struct {
		tls     string
		missing []string
	}{
		{"self,sm", nil},
		{"rc,sm", nil}, // which these components have
		{"rc_x,sm,tcp:aux", []string{"rc_x", "tcp:aux"}},
		{"sm,cuda_copy,rocm*,ze_ipc,dc_*,gdr_copy", []string{"cuda_copy", "rocm*", "ze_ipc", "dc_*", "gdr_copy"}},
		{"^tcp", nil},
	} {
		sel, err := Select(settings(t, "UCX_TLS="+c.tls), components)
		require.NoError(t, err, c.tls)
		var missing []string
		for _, r := range sel.Missing() {
			missing = append(missing, r.Transport)
			assert.Equal(t, "a transport of UCX that goucx does not have, asked for by UCX_TLS="+c.tls+" (environment UCX_TLS)", r.Reason)
		}
		assert.Equal(t, c.missing, missing, c.tls)
		u, _ := sel.Transport("shm")
		assert.Equal(t, UseAll, u, c.tls)
	}
}

func TestSelectionLeavesNothing(t *testing.T) {
	for _, tls := range []string{"tcp,dc_x", "^self,sm,ib", "sm:aux", ""} {
		_, err := Select(settings(t, "UCX_TLS="+tls), components)
		require.ErrorIs(t, err, ucs.ErrUnsupported)
		assert.ErrorContains(t, err, "setting UCX_TLS="+tls+" (environment UCX_TLS) leaves no transport; known are all, self, shm (sm, mm, posix)")
	}
}

func TestSelectionDevices(t *testing.T) {
	nic := func(d string) uct.IfaceInfo {
		return uct.IfaceInfo{Transport: "rc", Device: d, Kind: uct.DeviceNet}
	}
	shm := uct.IfaceInfo{Transport: "shm", Device: "memory", Kind: uct.DeviceShm}
	self := uct.IfaceInfo{Transport: "self", Device: "memory", Kind: uct.DeviceSelf}
	for _, c := range []struct {
		name, env string
		iface     uct.IfaceInfo
		want      Use
		reason    string
	}{
		{"net listed", "UCX_NET_DEVICES=mlx5_0:1", nic("mlx5_0:1"), UseAll, ""},
		{"net not listed", "UCX_NET_DEVICES=mlx5_0:1", nic("mlx5_1:1"), UseNone, "device not allowed by UCX_NET_DEVICES=mlx5_0:1 (environment UCX_NET_DEVICES)"},
		{"net glob", "UCX_NET_DEVICES=mlx5_*", nic("mlx5_7:1"), UseAll, ""},
		{"net negated", "UCX_NET_DEVICES=^mlx5_1:1", nic("mlx5_1:1"), UseNone, "device not allowed by UCX_NET_DEVICES=^mlx5_1:1 (environment UCX_NET_DEVICES)"},
		{"net without port", "UCX_NET_DEVICES=mlx5_0", nic("mlx5_0:1"), UseAll, ""},
		{"net of another name", "UCX_NET_DEVICES=mlx5_0", nic("mlx5_0.2:1"), UseNone, "device not allowed by UCX_NET_DEVICES=mlx5_0 (environment UCX_NET_DEVICES)"},
		{"net of another port", "UCX_NET_DEVICES=mlx5_0:2", nic("mlx5_0:1"), UseNone, "device not allowed by UCX_NET_DEVICES=mlx5_0:2 (environment UCX_NET_DEVICES)"},
		{"net negated without port", "UCX_NET_DEVICES=^mlx5_1", nic("mlx5_1:1"), UseNone, "device not allowed by UCX_NET_DEVICES=^mlx5_1 (environment UCX_NET_DEVICES)"},
		{"net negated with port", "UCX_NET_DEVICES=^mlx5_1:1", nic("mlx5_1:2"), UseAll, ""},
		{"net negated, others", "UCX_NET_DEVICES=^mlx5_1", nic("mlx5_0:1"), UseAll, ""},
		{"net leaves shm", "UCX_NET_DEVICES=none", shm, UseAll, ""},
		{"shm", "UCX_SHM_DEVICES=none", shm, UseNone, "device not allowed by UCX_SHM_DEVICES=none (environment UCX_SHM_DEVICES)"},
		{"shm leaves self", "UCX_SHM_DEVICES=none", self, UseAll, ""},
		{"self", "UCX_SELF_DEVICES=^memory", self, UseNone, "device not allowed by UCX_SELF_DEVICES=^memory (environment UCX_SELF_DEVICES)"},
		{"transport first", "UCX_TLS=sm", nic("mlx5_0:1"), UseNone, "not allowed by UCX_TLS=sm (environment UCX_TLS)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sel, err := Select(settings(t, c.env), components)
			require.NoError(t, err)
			u, reason := sel.Iface(c.iface)
			assert.Equal(t, c.want, u)
			assert.Equal(t, c.reason, reason)
		})
	}
}

// A device that somebody asks for and nobody has is told, with those that there are.
func TestSelectionAbsentDevices(t *testing.T) {
	ifaces := []uct.IfaceInfo{
		{Transport: "rc", Device: "mlx5_0:1", Kind: uct.DeviceNet},
		{Transport: "ud", Device: "mlx5_0:1", Kind: uct.DeviceNet},
		{Transport: "shm", Device: "memory", Kind: uct.DeviceShm},
	}
	refused := []uct.Refusal{{Transport: "rc", Device: "rxe0:1", Reason: "the port is down"}, {Transport: "rc", Device: "rxe1", Reason: "no permission"}}
	const text = " (environment UCX_NET_DEVICES); there are mlx5_0, mlx5_0:1"
	for env, want := range map[string][]string{
		"UCX_NET_DEVICES=mlx5_0:1":         nil,
		"UCX_NET_DEVICES=mlx5_0":           nil,
		"UCX_NET_DEVICES=mlx5_*":           nil,
		"UCX_NET_DEVICES=all":              nil,
		"UCX_NET_DEVICES=none":             nil,
		"UCX_NET_DEVICES=^mlx5_7":          nil,
		"UCX_SELF_DEVICES=self7":           nil, // there is nothing of that kind
		"UCX_NET_DEVICES=mlx5_0:1,mlx5_7":  {"mlx5_7: no such device, asked for by UCX_NET_DEVICES=mlx5_0:1,mlx5_7 (environment UCX_NET_DEVICES); there are mlx5_0, mlx5_0:1"},
		"UCX_NET_DEVICES=mlx5_0:2,mlx5_0*": {"mlx5_0:2: no such device, asked for by UCX_NET_DEVICES=mlx5_0:2,mlx5_0* (environment UCX_NET_DEVICES); there are mlx5_0, mlx5_0:1"},
		"UCX_NET_DEVICES=rxe0:1":           {"rxe0:1: this device cannot be used (the port is down), asked for by UCX_NET_DEVICES=rxe0:1" + text},
		"UCX_NET_DEVICES=rxe0":             {"rxe0: this device cannot be used (the port is down), asked for by UCX_NET_DEVICES=rxe0" + text},
		"UCX_NET_DEVICES=rxe1:1":           {"rxe1:1: this device cannot be used (no permission), asked for by UCX_NET_DEVICES=rxe1:1" + text},
		"UCX_NET_DEVICES=rxe0:2":           {"rxe0:2: no such device, asked for by UCX_NET_DEVICES=rxe0:2" + text},
	} {
		sel, err := Select(settings(t, env), components)
		require.NoError(t, err)
		var got []string
		for _, r := range sel.Absent(ifaces, refused) {
			got = append(got, r.String())
		}
		assert.Equal(t, want, got, env)
	}
}

func loadSettings(env []string) (*config.Set, error) {
	s, _, err := config.Load(config.Options{Env: env, Dirs: []string{}, Strict: true}, Settings())
	return s, err
}
