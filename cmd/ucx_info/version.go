package main

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// versionView is the build information of the binary.
type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// pseudoVersion matches the version of a commit without a tag, with the first 12 digits of its
// revision.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(\+|$)`)

// versionOf returns the version in the build information. The revision is that of the source tree,
// or, of a module from a proxy, the one in its version.
func versionOf(info *debug.BuildInfo) versionView {
	v := versionView{
		Version: cmp.Or(info.Main.Version, "(devel)"), Revision: "<unknown>",
		Go: cmp.Or(info.GoVersion, runtime.Version()), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if m := pseudoVersion.FindStringSubmatch(v.Version); m != nil {
		v.Revision = m[1]
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{} // built without modules
}

// version prints -v: UCX's three lines, then Go's. The build information has no branch.
func (t *tool) version() error {
	info := buildInfo()
	v := versionOf(info)
	t.document["version"] = v
	if t.json {
		return nil
	}
	short := v.Revision
	if len(short) >= 40 {
		short = short[:7]
	}
	modified := ""
	if v.Modified {
		modified = " (modified)"
	}
	t.line("Version %s", v.Version)
	t.line("Git branch '<unknown>', revision %s%s", short, modified)
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
	info := buildInfo()
	v := versionOf(info)
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
