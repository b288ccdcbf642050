# mcd: build, check, test, ship. `make help` lists the targets; each begins with what it may touch.
#
# Variables: T=NAME        run the tests whose name has NAME in it (test, test-unit, snap)
#            PROFILE=release  build and ship the optimised program (rpm's default)
#            DESTDIR= PREFIX=/usr  where install puts things

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: help build check check-fmt check-clippy check-docs check-generated check-units check-shell \
        check-deny test test-unit snap demo docs man completions install rpm clean tools

T ?=
PROFILE ?= debug
PREFIX ?= /usr
DESTDIR ?=

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mcd
# A CI run starts from a fresh clone: what was compiled before is worth keeping elsewhere.
ifeq ($(CI),true)
ifeq ($(CARGO_TARGET_DIR),)
export CARGO_TARGET_DIR := $(CACHE)/target
endif
endif
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY ?= $(TARGET)/$(PROFILE)/mcd
CARGO_PROFILE := $(if $(filter release,$(PROFILE)),--release)
CARGO := cargo
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Tools that are compiled once per version.
CARGO_DENY_VERSION := 0.20.2
TOOLS := $(CACHE)/tools/cargo-deny-$(CARGO_DENY_VERSION)

# Touches nothing.
help:
	@awk '/^# / { text = substr($$0, 3); next } \
	      /^[a-z-]+:/ { sub(/:.*/, ""); if (text != "") printf "%-16s %s\n", $$0, text } { text = "" }' Makefile

# Touches target/, and apt if a library is missing.
build: setup-build
	$(CARGO) build --workspace $(CARGO_PROFILE)

# Touches apt, where something that a step needs is missing.
setup-%:
	@tests/setup.sh $*

# ---- checks: nothing in the tree is changed ---------------------------------------------------

# Touches target/ only: format, lints, docs, generated files, units, scripts, supply chain.
check: check-fmt check-shell check-clippy check-docs check-generated check-units check-deny

# Touches nothing.
check-fmt:
	$(CARGO) fmt --all --check

# Touches target/: with all features, and as the small program of the initramfs.
check-clippy: setup-build
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --no-default-features --lib --bins -- -D warnings

# Touches target/: links and mistakes in the documentation.
check-docs: setup-build
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps

# Touches target/: whether docs/man is what the program would write.
check-generated: build
	rm -rf $(TARGET)/generated && mkdir -p $(TARGET)/generated
	$(BINARY) generate man $(TARGET)/generated
	diff -ru docs/man $(TARGET)/generated || { echo "docs/man is out of date: run make man" >&2; exit 1; }

# Touches target/: the units as systemd reads them, in a root that holds what make install puts there.
check-units: build setup-test
	tests/units.sh "$(abspath $(BINARY))"

# Touches nothing.
check-shell: setup-test
	git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck

# Touches nothing: licences, sources and banned crates, where cargo-deny is at hand.
check-deny:
	@if [ -x $(TOOLS)/bin/cargo-deny ]; then PATH=$(TOOLS)/bin:$$PATH; fi; \
	if command -v cargo-deny >/dev/null; then cargo-deny --offline check bans licenses sources; \
	else echo "check-deny: cargo-deny is not here, the supply chain was not checked (make tools: some minutes)" >&2; fi

# Touches the cache folder: compiles cargo-deny there, once per version.
tools:
	[ -x $(TOOLS)/bin/cargo-deny ] || $(CARGO) install --quiet --locked --debug --root $(TOOLS) \
	    --target-dir $(CACHE)/tools/target --version $(CARGO_DENY_VERSION) cargo-deny
	rm -rf $(CACHE)/tools/target

# ---- tests ------------------------------------------------------------------------------------

# Touches target/, temporary folders and the cache folder; apt, where something is missing.
test: setup-test build
	$(CARGO) test --workspace -- $(T)

# Touches target/: no root, no network, under a minute.
test-unit:
	$(CARGO) test --lib --bins -- $(T)

# Touches the snapshots: accepts what the tests that match T show now. Explain it in the commit.
snap:
	INSTA_UPDATE=always $(CARGO) test --workspace -- $(T)

# Touches target/, temporary folders and the cache folder; apt, where something is missing.
demo: setup-demo build
	tests/demo.sh "$(abspath $(BINARY))"

# ---- what is generated and shipped ------------------------------------------------------------

# Touches target/: the API's pages.
docs: setup-build
	$(CARGO) doc --workspace --no-deps --document-private-items

# Touches docs/man.
man: build
	rm -f docs/man/*.8
	$(BINARY) generate man docs/man

# Touches target/completions.
completions: $(BINARY)
	rm -rf $(TARGET)/completions && mkdir -p $(TARGET)/completions
	$(BINARY) generate completions $(TARGET)/completions

$(BINARY):
	$(MAKE) build

# Touches DESTDIR: the program, its old names, units, manual pages, completions.
install: completions
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/mcd
	ln -sf mcd $(DESTDIR)$(PREFIX)/bin/pivot
	install -d $(DESTDIR)$(PREFIX)/libexec
	ln -sf ../bin/mcd $(DESTDIR)$(PREFIX)/libexec/machine-config-daemon
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system systemd/*.service
	ln -sf mcd-pivot.service $(DESTDIR)$(PREFIX)/lib/systemd/system/pivot.service
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system-preset systemd/80-mcd.preset
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8
	install -D -m 0644 $(TARGET)/completions/mcd.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/mcd
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(TARGET)/completions/_mcd
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(TARGET)/completions/mcd.fish

# Touches target/rpm: a binary package of the program that PROFILE names (make rpm: the release).
rpm: setup-test
	$(MAKE) rpm-prebuilt PROFILE=release

# Touches target/rpm: the same from a program that is built already.
rpm-prebuilt: $(BINARY)
	rm -rf $(TARGET)/rpm
	rpmbuild -bb --quiet --nodeps rpm/mcd.spec \
	    --define "_topdir $(abspath $(TARGET)/rpm)" --define "mcd_tree $(CURDIR)" \
	    --define "mcd_version $(VERSION)" --define "mcd_binary $(abspath $(BINARY))" \
	    --define "mcd_target $(abspath $(TARGET))"
	ls $(TARGET)/rpm/RPMS/*/*.rpm

# Touches target/.
clean:
	$(CARGO) clean
