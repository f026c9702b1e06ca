package config

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// checkJSONKeys refuses an object with a key twice, as YAML and TOML do by
// themselves: of the two, encoding/json would keep the last. What is no JSON is
// left to whoever decodes it.
func checkJSONKeys(text []byte) error {
	type object struct {
		keys  map[string]bool // nil: an array
		isKey bool            // the next token is one
	}
	var open []object
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return nil // also at the end
		}
		if n := len(open); n > 0 && open[n-1].isKey && token != json.Delim('}') {
			key, _ := token.(string)
			if open[n-1].keys[key] {
				return fmt.Errorf("key %q stands twice", key)
			}
			open[n-1].keys[key], open[n-1].isKey = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, object{keys: map[string]bool{}, isKey: true})
			continue
		case json.Delim('['):
			open = append(open, object{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if n := len(open); n > 0 { // a value has ended
			open[n-1].isKey = open[n-1].keys != nil
		}
	}
}
