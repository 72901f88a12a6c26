package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// image is the only one there is: of pods and of their containers.
const image = "e2e.local/box:1"

type object = map[string]any

// imageOf is an image with one program as its only file, as a tar of an OCI layout.
func imageOf(program string) ([]byte, error) {
	body, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var failed error
	archive := func(files map[string][]byte, folders ...string) []byte {
		var text bytes.Buffer
		writer := tar.NewWriter(&text)
		for _, name := range folders {
			header := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
			failed = errors.Join(failed, writer.WriteHeader(header))
		}
		for name, body := range files {
			header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(body))}
			failed = errors.Join(failed, writer.WriteHeader(header))
			_, err := writer.Write(body)
			failed = errors.Join(failed, err)
		}
		failed = errors.Join(failed, writer.Close())
		return text.Bytes()
	}
	layout := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	// add puts a blob into the layout, and returns its descriptor.
	add := func(media string, content any) object {
		blob, ok := content.([]byte)
		if !ok {
			blob = marshal(content.(object))
		}
		layout["blobs/sha256/"+strings.TrimPrefix(digest(blob), "sha256:")] = blob
		return object{"mediaType": media, "digest": digest(blob), "size": len(blob)}
	}
	layer := archive(map[string][]byte{"box": body}, "dev", "etc", "proc", "sys", "tmp")
	platform := object{"architecture": runtime.GOARCH, "os": "linux"}
	manifest := add("application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config": add("application/vnd.oci.image.config.v1+json", object{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": object{"Entrypoint": []string{"/box"}, "Env": []string{"PATH=/bin"}},
			"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer)}},
		}),
		"layers": []object{add("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	manifest["platform"] = platform
	manifest["annotations"] = object{"io.containerd.image.name": image}
	layout["index.json"] = marshal(object{"schemaVersion": 2, "manifests": []object{manifest}})
	return archive(layout), failed
}

func digest(blob []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(blob)) }

func marshal(value object) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // Maps of strings and numbers, all written above.
	}
	return text
}
