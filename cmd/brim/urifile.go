package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A MongoDB URI is named in two ways: as it is, and by the file that it is in,
// as secrets are given to containers. What comes from the stronger source wins.
const (
	uriSetting     = "mongo-uri"
	uriFileSetting = "mongo-uri-file"
)

// fitURI settles which of the two counts, and reads the file.
func (c *configuration) fitURI() error {
	at := func(name string) effective {
		return c.effective[slices.IndexFunc(c.effective, func(e effective) bool { return e.name == name })]
	}
	rank := func(e effective) int {
		return slices.Index([]string{fromFlag, fromEnv, fromFile, fromDefault}, e.origin.Source)
	}
	direct, file := at(uriSetting), at(uriFileSetting)
	switch {
	case file.text == "":
		return nil
	case direct.text == "" || rank(file) < rank(direct):
		uri, err := readURIFile(file.text)
		if err != nil {
			return file.problem(uriFileSetting, err)
		}
		c.MongoURI = uri
		return nil
	case rank(direct) < rank(file):
		c.MongoURIFile = ""
		return nil
	default:
		return fmt.Errorf("%s and %s both say where MongoDB is (%s, %s); give one of them", uriSetting, uriFileSetting, direct.origin, file.origin)
	}
}

// maxURIBytes is more than any URI has.
const maxURIBytes = 64 << 10

// readURIFile reads the URI of a file that holds nothing else. An error does
// not have what is in it.
func readURIFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("look at the file: %w", err)
	}
	if info.Size() > maxURIBytes {
		return "", fmt.Errorf("%s has %d bytes; allowed are a MongoDB URI and nothing else", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the file: %w", err)
	}
	uri := strings.TrimSpace(string(text))
	switch {
	case uri == "":
		return "", fmt.Errorf("%s is empty; allowed is a MongoDB URI", path)
	case strings.ContainsAny(uri, "\r\n"):
		return "", fmt.Errorf("%s has several lines; allowed are a MongoDB URI and nothing else", path)
	}
	if err := checkURI(uri); err != nil {
		return "", fmt.Errorf("%s does not hold a MongoDB URI: %w", path, err)
	}
	return uri, nil
}
