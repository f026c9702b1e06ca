package main

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/goucx/goucx/internal/cmdline"
)

// version prints -v: UCX's three lines, then Go's. The build information has no branch.
func (t *tool) version() error {
	info := cmdline.Info()
	v := cmdline.BuildOf(info)
	t.document["version"] = v
	if t.json {
		return nil
	}
	t.line("Version %s", v.Version)
	t.line("Git branch '<unknown>', revision %s", v.ShortRevision())
	t.line("Configured with: %s", configureFlags(info))
	t.line("Built with: %s %s", v.Go, v.Platform)
	return nil
}

// configureFlags returns the build settings that are set, but for those of version control.
func configureFlags(info *debug.BuildInfo) string {
	var flags []string
	for _, s := range info.Settings {
		if s.Value != "" && !strings.HasPrefix(s.Key, "vcs") {
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return strings.Join(flags, " ")
}

// notName matches what no name of a macro has.
var notName = regexp.MustCompile(`[^A-Za-z0-9_]+`)

// build prints -b: UCX's macros that have a meaning here, the build settings that the Go tool
// records, and the modules, as #define lines in the order of their names.
func (t *tool) build() error {
	info := cmdline.Info()
	v := cmdline.BuildOf(info)
	defines := map[string]string{
		"UCX_CONFIG_H": "",
		"ENABLE_MT":    "1", "ENABLE_PARAMS_CHECK": "1", "ENABLE_STATS": "1", "ENABLE_ASSERT": "0", "ENABLE_DEBUG_DATA": "0",
		"PACKAGE": `"goucx"`, "PACKAGE_NAME": `"goucx"`, "PACKAGE_STRING": strconv.Quote("goucx " + v.Version),
		"PACKAGE_VERSION": strconv.Quote(v.Version), "VERSION": strconv.Quote(v.Version),
		"UCX_CONFIGURE_FLAGS": strconv.Quote(configureFlags(info)), "GO_VERSION": strconv.Quote(v.Go),
	}
	var modules strings.Builder
	for _, p := range t.providers {
		defines["HAVE_TL_"+strings.ToUpper(p.Name())] = "1"
		modules.WriteString(":" + p.Name())
	}
	defines["uct_MODULES"] = strconv.Quote(modules.String())
	for _, s := range info.Settings {
		name, flag := strings.CutPrefix(s.Key, "-")
		if flag {
			name = "GO_" + name
		}
		value := s.Value
		if _, err := strconv.Atoi(value); err != nil {
			value = strconv.Quote(value)
		}
		defines[strings.ToUpper(notName.ReplaceAllString(name, "_"))] = value
	}
	for _, d := range info.Deps {
		defines["MODULE_"+strings.ToUpper(notName.ReplaceAllString(d.Path, "_"))] = strconv.Quote(d.Version)
	}
	names := make([]string, 0, len(defines))
	for name := range defines {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.out.WriteString(strings.TrimRight(fmt.Sprintf("#define %-25s %s", name, defines[name]), " ") + "\n")
	}
	return nil
}
