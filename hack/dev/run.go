package main

import "context"

func (c *Cluster) Run(ctx context.Context) error  { return nil }
func (c *Cluster) Demo(ctx context.Context) error { return nil }
