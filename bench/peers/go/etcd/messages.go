package main

import "fmt"

// The fields of etcd's lock service that are used here.
type lockRequest struct {
	Name  []byte `protobuf:"bytes,1,opt,name=name,proto3"`
	Lease int64  `protobuf:"varint,2,opt,name=lease,proto3"`
}

type lockResponse struct {
	Key []byte `protobuf:"bytes,2,opt,name=key,proto3"`
}

type unlockRequest struct {
	Key []byte `protobuf:"bytes,1,opt,name=key,proto3"`
}

type unlockResponse struct{}

func (m *lockRequest) Reset()         { *m = lockRequest{} }
func (m *lockRequest) String() string { return fmt.Sprint(*m) }
func (*lockRequest) ProtoMessage()    {}

func (m *lockResponse) Reset()         { *m = lockResponse{} }
func (m *lockResponse) String() string { return fmt.Sprint(*m) }
func (*lockResponse) ProtoMessage()    {}

func (m *unlockRequest) Reset()         { *m = unlockRequest{} }
func (m *unlockRequest) String() string { return fmt.Sprint(*m) }
func (*unlockRequest) ProtoMessage()    {}

func (m *unlockResponse) Reset()         { *m = unlockResponse{} }
func (m *unlockResponse) String() string { return fmt.Sprint(*m) }
func (*unlockResponse) ProtoMessage()    {}
