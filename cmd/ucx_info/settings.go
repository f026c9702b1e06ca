package main

import (
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
)

// settingView is the JSON form of a setting.
type settingView struct {
	Section  string   `json:"section"`
	Name     string   `json:"name"`
	Value    string   `json:"value"`
	Default  string   `json:"default"`
	Unit     string   `json:"unit,omitempty"`
	Allowed  string   `json:"allowed"`
	Aliases  []string `json:"aliases,omitempty"`
	Inherits []string `json:"inherits,omitempty"`
	Origin   string   `json:"origin"`
	From     string   `json:"inherited_from,omitempty"`
	Help     string   `json:"help"`
}

// config prints -c as text in the format of ucx.conf.
func (t *tool) config() error {
	set, err := t.settings()
	if err != nil {
		return err
	}
	if t.full && !t.json {
		t.out.WriteString("# goucx configuration file\n# Uncomment to modify values\n")
	}
	views := []settingView{}
	section := ""
	for v := range set.All() {
		if !strings.Contains(config.Prefix+v.Name, strings.ToUpper(t.filter)) {
			continue
		}
		views = append(views, viewOf(v))
		if t.json {
			continue
		}
		if t.full && v.Section != section {
			t.out.WriteString("\n#\n# " + v.Section + " settings\n#\n")
		}
		section = v.Section
		t.setting(v)
	}
	t.document["settings"] = views
	return nil
}

// setting prints one row. The origin of its value precedes it, unless it is the default.
func (t *tool) setting(v config.Value) {
	if t.full {
		t.out.WriteString("\n")
		t.line("")
		for line := range strings.Lines(v.Help) {
			t.line("%s", strings.TrimRight(line, "\n"))
		}
		t.line("")
		t.line("syntax:    %s", v.Allowed)
		if v.Default != v.Text {
			t.line("default:   %s", v.Default)
		}
		if len(v.Aliases) > 0 {
			t.line("aliases:   %s%s", config.Prefix, strings.Join(v.Aliases, ", "+config.Prefix))
		}
		if len(v.Fallbacks) > 0 {
			t.line("inherits:  %s%s", config.Prefix, strings.Join(v.Fallbacks, ", "+config.Prefix))
		}
	}
	origin := originText(v)
	if origin != "" {
		t.line("origin:    %s", origin)
	}
	if t.full {
		t.line("")
	}
	mark := ""
	if t.commentOut && origin == "" {
		mark = "# "
	}
	t.out.WriteString(mark + config.Prefix + v.Name + "=" + v.Text + "\n")
}

// originText returns the origin of a value, "" for the default.
func originText(v config.Value) string {
	if v.Origin.Kind == config.Default {
		return ""
	}
	s := v.Origin.String()
	if v.InheritedFrom != "" && !slices.Contains(v.Aliases, v.InheritedFrom) {
		s += ", inherited from " + config.Prefix + v.InheritedFrom
	}
	return s
}

func viewOf(v config.Value) settingView {
	return settingView{
		Section: v.Section, Name: config.Prefix + v.Name, Value: v.Text, Default: v.Default, Unit: v.Unit,
		Allowed: v.Allowed, Aliases: v.Aliases, Inherits: v.Fallbacks, Origin: v.Origin.String(), From: v.InheritedFrom, Help: v.Help,
	}
}
