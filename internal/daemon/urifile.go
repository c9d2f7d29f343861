package daemon

import (
	"fmt"
	"slices"

	"github.com/brim-telemetry/brim/internal/config"
)

// A MongoDB URI is named in two ways: as it is, and by the file that it is in,
// as secrets are given to containers. What comes from the stronger source wins.
const (
	UriSetting     = "mongo-uri"
	UriFileSetting = "mongo-uri-file"
)

// fitURI settles which of the two counts, and reads the file.
func (c *Config) fitURI() error {
	at := func(name string) effective {
		return c.effective[slices.IndexFunc(c.effective, func(e effective) bool { return e.Name == name })]
	}
	rank := func(e effective) int {
		return slices.Index([]string{fromFlag, FromEnv, FromFile, FromDefault}, e.origin.Source)
	}
	direct, file := at(UriSetting), at(UriFileSetting)
	switch {
	case file.text == "":
		return nil
	case direct.text == "" || rank(file) < rank(direct):
		uri, err := config.ReadURIFile(file.text)
		if err != nil {
			return file.problem(UriFileSetting, err)
		}
		c.MongoURI = uri
		return nil
	case rank(direct) < rank(file):
		c.MongoURIFile = ""
		return nil
	default:
		return fmt.Errorf("%s and %s both say where MongoDB is (%s, %s); give one of them", UriSetting, UriFileSetting, direct.origin, file.origin)
	}
}
