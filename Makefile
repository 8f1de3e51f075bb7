# make help lists what there is. Everything real is in tools/, CMake and CTest.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help
.NOTPARALLEL:
# ARCH=aarch64: for 64-bit Arm, from x86-64.
PRESET ?= $(or $(ARCH),release)
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)
# A skipped test is a failure: a check that did not run says nothing. Only those that need a Slurm of
# their own may be missing, where there are no namespaces; they are named as not run.
# One test more than there are cores: those of launchers and of Slurm wait more than they compute.
RUN_CTEST = log=$(BUILD)/ctest.log; \
	ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j$$(($(JOBS) + 1)) $(1) | tee $$log; \
	grep -E ' slurm_.*\*\*\*Skipped' $$log | sed 's/^/make: not run here:/' || true; \
	if grep -E '\*\*\*(Skipped|Not Run)' $$log | grep -v ' slurm_'; then echo "make: skipped tests are failures"; exit 1; fi
RUN_BUILD = cmake --preset $(PRESET) -DCMAKE_MESSAGE_LOG_LEVEL=WARNING; \
	cmake --build --preset $(PRESET) -j$(JOBS) $(1)

.PHONY: help setup setup-test setup-reference build demo test unit test-reference sanitize lint docs cuda wheel wheel-programs bundle release clean

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

# The environments come before the build: CMake looks for them when it configures.
setup:
	@tools/setup
setup-test:
	@tools/setup --test $(if $(filter aarch64,$(PRESET)),--aarch64)
setup-reference:
	@tools/setup --test --reference

build: setup  ## build/release/bin: the two programs and the tests (PRESET=dev|release|cuda)
	@$(call RUN_BUILD,)

demo: setup  ## train, be killed twice, resume on 3 and on 1 ranks, compare (TEXT=file of your own)
	@$(call RUN_BUILD,--target lockstep lockstep-worker)
	@PATH="$(CURDIR)/$(BUILD)/bin:$$PATH" tools/demo $(if $(TEXT),"$(TEXT)")

# With ROOM, a folder of tests/unit, that room's tests are built and run alone.
test: setup-test  ## every test except gpu, slow, soak and reference (ROOM=data: of that room alone)
	@$(call RUN_BUILD,$(if $(ROOM),--target room_$(ROOM)))
	@$(call RUN_CTEST,$(if $(ROOM),-L "^room_$(ROOM)$$") -LE "gpu|slow|soak|reference")

unit: setup-test  ## the unit tests that need no Torch, in a minute
	@$(call RUN_BUILD,--target unit_tests)
	@$(call RUN_CTEST,-L "^unit$$" -LE "^torch$$")

test-reference: setup-reference build  ## checks against Python's torch, transformers and TensorBoard (5 GB)
	@$(call RUN_CTEST,-L reference)

sanitize:  ## the unit tests that need no Torch under ASan with UBSan, and under TSan; before a release
	@tools/check_sanitizers

lint:  ## the house rules; also a unit test
	@python3 tests/lint/lint.py

docs:  ## build/docs: the pages as a site, with search (tools/docs --serve: while you write)
	@tools/docs

cuda: setup  ## build/cuda/bin/lockstep-worker, where nvcc and `tools/setup --cuda` are (no GPU needed)
	@tools/build_cuda

wheel: wheel-programs  ## build/wheel: the programs as a Python wheel (docs/INSTALL.md); WORKERS= leaves older torches out, CUDA=1 adds a worker for GPUs, ARCH=aarch64 is for Arm
	@packaging/wheel/build_wheel.py build/wheel $(WHEEL_PROGRAMS)

# A wheel's programs, and its workers for other versions of torch than this build's.
WORKERS ?= $(if $(ARCH),,2.11)
CUDA ?=
WHEEL_PROGRAMS = $(BUILD)/bin/wheel $(WORKERS:%=build/torch-%/bin/wheel) $(if $(CUDA),build/cuda/bin/wheel)
wheel-programs: setup-test
	@$(if $(WORKERS),tools/setup --older)
	@$(call RUN_BUILD,--target wheel_programs)
	@for minor in $(WORKERS); do $(MAKE) --no-print-directory wheel-programs PRESET=torch-$$minor WORKERS= CUDA=; done
	@$(if $(CUDA),tools/build_cuda)

bundle: setup-test  ## build/bundle: a folder for nodes without internet (WITH="config.toml tokenizer tokens")
	@$(call RUN_BUILD,--target lockstep lockstep-worker)
	@packaging/bundle/build_bundle.py $(BUILD)/bin build/bundle $(WITH)

comma := ,
space := $(subst ,, )
release: wheel-programs  ## build/dist: a wheel for x86-64 and one for Arm, checked, with SBOMs, sums and changes, of a clean commit with a version
	@$(MAKE) --no-print-directory wheel-programs ARCH=aarch64 CUDA=
	@packaging/release/build_release.py build/dist $(subst $(space),$(comma),$(strip $(WHEEL_PROGRAMS))) build/aarch64/bin/wheel

clean:  ## what was built; downloads stay in .deps
	rm -rf build
