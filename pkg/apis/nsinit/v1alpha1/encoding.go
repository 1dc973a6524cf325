/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// configurationNumber is the number of configuration in the message PlannedInitializer. The message is flat, because
// it is older than the struct that it shares with RegisteredInitializer, and stored objects must stay readable.
const configurationNumber protowire.Number = 2

// Marshal encodes the initializer, with configuration at its place between the fields of RegisteredInitializer.
func (m *PlannedInitializer) Marshal() ([]byte, error) {
	initializer, err := m.RegisteredInitializer.Marshal()
	if err != nil {
		return nil, err
	}
	var configuration, message []byte
	if m.Configuration != nil {
		reference, err := m.Configuration.Marshal()
		if err != nil {
			return nil, err
		}
		configuration = protowire.AppendBytes(protowire.AppendTag(nil, configurationNumber, protowire.BytesType), reference)
	}
	err = eachField(initializer, func(number protowire.Number, kind protowire.Type, value []byte) error {
		if number >= configurationNumber {
			message, configuration = append(message, configuration...), nil
			number++
		}
		message = append(protowire.AppendTag(message, number, kind), value...)
		return nil
	})
	return append(message, configuration...), err
}

// MarshalTo encodes the initializer at the start of data and returns the number of bytes.
func (m *PlannedInitializer) MarshalTo(data []byte) (int, error) {
	return m.MarshalToSizedBuffer(data[:min(m.Size(), len(data))])
}

// MarshalToSizedBuffer encodes the initializer at the end of data and returns the number of bytes.
func (m *PlannedInitializer) MarshalToSizedBuffer(data []byte) (int, error) {
	message, err := m.Marshal()
	if err == nil && len(message) > len(data) {
		err = io.ErrShortBuffer
	}
	if err != nil {
		return 0, err
	}
	return copy(data[len(data)-len(message):], message), nil
}

// Size returns the number of bytes of the encoded initializer.
func (m *PlannedInitializer) Size() int {
	message, _ := m.Marshal() // MarshalToSizedBuffer returns the error
	return len(message)
}

// Unmarshal decodes what Marshal encodes. As every generated decoder, it skips unknown fields.
func (m *PlannedInitializer) Unmarshal(data []byte) error {
	var initializer []byte
	err := eachField(data, func(number protowire.Number, kind protowire.Type, value []byte) error {
		if number == configurationNumber {
			reference, length := protowire.ConsumeBytes(value)
			if kind != protowire.BytesType || length < 0 {
				return fmt.Errorf("proto: wrong wireType = %d for field Configuration", kind)
			}
			m.Configuration = &ConfigurationReference{}
			return m.Configuration.Unmarshal(reference)
		}
		if number > configurationNumber {
			number--
		}
		initializer = append(protowire.AppendTag(initializer, number, kind), value...)
		return nil
	})
	if err != nil {
		return err
	}
	return m.RegisteredInitializer.Unmarshal(initializer)
}

// eachField calls visit with each field of an encoded message, until visit returns an error.
func eachField(message []byte, visit func(number protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if length < 0 {
			return protowire.ParseError(length)
		}
		if err := visit(number, kind, message[tag:tag+length]); err != nil {
			return err
		}
		message = message[tag+length:]
	}
	return nil
}
