// Tools that check the code and are no part of it. They have a module of their own, so that
// what they depend on does not weigh on the product.
module github.com/nsinit/nsinit/hack/tools

go 1.26.0

tool (
	github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	sigs.k8s.io/logtools/logcheck
)
