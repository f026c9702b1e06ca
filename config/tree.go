package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
)

// readTree reads a YAML, TOML or JSON file with a separate viper instance. It joins nested
// sections by _ and converts lists to comma-separated lists. Two keys with the same meaning are an
// error, because the order of a file's keys is lost.
func readTree(path string, text []byte) ([]entry, error) {
	v := viper.NewWithOptions(viper.WithDecoderRegistry(checkedDecoders{viper.NewCodecRegistry()}))
	v.SetConfigType(extension(path))
	if extension(path) == "json" {
		if err := checkJSONKeys(text); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []entry
	var errs []error
	for _, key := range slices.Sorted(slices.Values(v.AllKeys())) {
		place := path + ":" + printable(key)
		text, err := scalarText(v.Get(key), true)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place, err))
			continue
		}
		e := entry{name: canonical(key), text: text, origin: Origin{File, place}}
		if i := slices.IndexFunc(out, func(o entry) bool { return o.name == e.name }); i >= 0 {
			errs = append(errs, fmt.Errorf("%s and %s name the same setting", out[i].origin, e.origin))
			continue
		}
		out = append(out, e)
	}
	return out, errors.Join(errs...)
}

// scalarText returns the spelling of a decoded value in ucx.conf.
func scalarText(v any, listAllowed bool) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New(`no value; write "" for an empty one`)
	case string:
		return v, nil
	case bool:
		return formatBool(v), nil
	case int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		return floatText(v)
	case []any:
		if listAllowed {
			return listText(v)
		}
	}
	return "", fmt.Errorf("a value of type %T; want text, a number, a switch or a list of these", v)
}

func listText(items []any) (string, error) {
	texts := make([]string, len(items))
	for i, item := range items {
		text, err := scalarText(item, false)
		if err != nil {
			return "", fmt.Errorf("item %d: %w", i+1, err)
		}
		texts[i] = text
	}
	return strings.Join(texts, ","), nil
}

// floatText refuses whole numbers that float64 may have changed: JSON has no other number type.
func floatText(f float64) (string, error) {
	if math.IsInf(f, 1) {
		return wordInf, nil
	}
	if math.Abs(f) > 1<<53 {
		return "", errors.New("number beyond 2^53; write it as text")
	}
	return strconv.FormatFloat(f, 'f', -1, 64), nil
}

// checkedDecoders wraps viper's decoders. It checks each tree before viper folds the case of its
// keys and joins them. Of two keys that become equal, viper would keep an arbitrary one.
type checkedDecoders struct{ inner viper.DecoderRegistry }

func (c checkedDecoders) Decoder(format string) (viper.Decoder, error) {
	d, err := c.inner.Decoder(format)
	return checkedDecoder{d}, err
}

type checkedDecoder struct{ inner viper.Decoder }

func (d checkedDecoder) Decode(text []byte, tree map[string]any) error {
	if err := d.inner.Decode(text, tree); err != nil {
		return err
	}
	return checkKeys(tree, "", 1, map[string]string{})
}

// maxDepth is the maximum nesting depth of sections. No name has as many parts, and viper's cost
// grows with its cube.
const maxDepth = 16

// checkKeys returns an error for keys that viper cannot distinguish, within one section or with
// points in them. seen holds the path of each folded key.
func checkKeys(tree map[string]any, parent string, depth int, seen map[string]string) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d sections within each other", maxDepth)
	}
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		path := parent + k
		folded := strings.ToLower(path)
		other, taken := seen[folded]
		seen[folded] = path
		switch {
		case taken && other == path:
			errs = append(errs, fmt.Errorf("key %q stands twice, with points and in a section", path))
		case taken:
			errs = append(errs, fmt.Errorf("keys %q and %q differ in case only", other, path))
		}
		if sub, ok := tree[k].(map[string]any); ok {
			errs = append(errs, checkKeys(sub, path+".", depth+1, seen))
		}
	}
	return errors.Join(errs...)
}
