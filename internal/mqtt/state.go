package mqtt

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/sparkplug"
)

// A state is kept in a file across restarts. It has the client ID, which identifies the session
// at the broker; the topic filter, to unsubscribe from it if it changes; and the births of
// Sparkplug nodes, to resolve aliases.
type state struct {
	ClientID string           `json:"client_id"`
	Filter   string           `json:"filter"`
	Births   sparkplug.Births `json:"births,omitempty"`

	path string
	mu   *sync.Mutex
}

// openState reads the state, or creates it. clientID takes precedence if it is not empty.
func openState(path, clientID string) (state, error) {
	s := state{path: path, mu: new(sync.Mutex)}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return s, fmt.Errorf("create the folder of MQTT subscriptions: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read the state of an MQTT subscription: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(content, &s); err != nil {
			return s, fmt.Errorf("%s is not the state of an MQTT subscription: %w; remove it to start with a new session", path, err)
		}
	}
	if clientID != "" && s.ClientID != clientID {
		s.ClientID, s.Filter = clientID, ""
	} else if s.ClientID == "" {
		s.ClientID = "brim-" + strings.ToLower(rand.Text()[:16])
	}
	return s, s.save()
}

// save replaces the file. The caller must hold mu.
func (s *state) save() error {
	content, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the state of an MQTT subscription: %w", err)
	}
	return machine.ReplaceFile(s.path, content, nil)
}

// update changes the state and saves it.
func (s *state) update(change func(*state)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	return s.save()
}
