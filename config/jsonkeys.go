package config

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// checkJSONKeys returns an error for an object with a duplicate key, as the YAML and TOML decoders
// do; encoding/json would use the last one. Malformed JSON is left to the decoder.
func checkJSONKeys(text []byte) error {
	type object struct {
		keys  map[string]bool // nil: an array
		isKey bool            // the next token is a key
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
		if n := len(open); n > 0 { // a value is complete
			open[n-1].isKey = open[n-1].keys != nil
		}
	}
}
