// The pages of `lockstep serve` without a connection: what they say, and what they refuse.
#include "cli/serve/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/serve/page_files.h"
#include "cli/serve/run_pages.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using launcher::net::PageRequest;
using launcher::net::StatusPage;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

std::string step_line(int64_t step, double loss, int64_t generation, const std::string& more = "") {
  return text(R"({"step":)", step, R"(,"loss":)", loss, R"(,"tokens":100,"step_time_s":2,"t":)",
              1'700'000'000 + 2 * step, R"(,"world_size":2,"generation":)", generation, more,
              "}\n");
}

class TestClock : public Clock {
 public:
  int64_t monotonic_ns() override { return now_ns; }
  int64_t unix_ns() override { return 1'700'000'100'000'000'000; }
  void sleep_ns(int64_t) override {}
  int64_t now_ns = 0;
};

class DashboardTest : public testing::Test {
 protected:
  DashboardTest() {
    make_run("b", 3);
    make_run("a", 5);
  }
  void make_run(const std::string& name, int64_t steps) {
    std::string lines;
    for (int64_t step = 1; step <= steps; ++step)
      lines += step_line(step, 10 - static_cast<double>(step), step < 3 ? 0 : 1);
    fs::create_directories(root_ / name);
    write(name + "/metrics.jsonl", lines);
    write(name + "/run_args.json",
          text(R"({"config":{"model":{"name":"llama"},"parallelism":{"strategy":"ddp"},)",
               R"("training":{"steps":)", steps, R"(}},"parameters":12345,"world_size":2})"));
    write(name + "/events.jsonl",
          R"({"event":"generation_start","generation":0,"t":1700000001}
{"event":"failure_detected","generation":0,"rank":1,"reason":"killed by SIGKILL","t":1700000005}
torn
{"event":"generation_start","generation":1,"t":1700000006}
)");
  }
  void write(const std::string& name, const std::string& contents) {
    ASSERT_TRUE(publish_file(posix_file_system(), root_ / name, contents).ok());
  }
  StatusPage ask(std::string_view path, std::string_view query = "", std::string_view token = "") {
    return dashboard_.page({.path = path, .query = query, .token = token});
  }
  json answer(std::string_view path, std::string_view query = "") {
    const StatusPage page = ask(path, query);
    EXPECT_EQ(page.status, 200u) << page.body;
    EXPECT_EQ(page.content_type, "application/json");
    return json::parse(page.body);
  }

  test_support::TempDir dir_;
  const fs::path root_ = dir_ / "results";
  TestClock clock_;
  Dashboard dashboard_{posix_file_system(), clock_, root_};
};

TEST_F(DashboardTest, RunsAreListedWithTheirState) {
  const json all = answer("/api/runs");
  EXPECT_EQ(all["results"], "results");
  ASSERT_EQ(all["runs"].size(), 2u);
  const json& a = all["runs"][0];
  EXPECT_EQ(a["run"], "a");
  EXPECT_EQ(a["step"], 5);
  EXPECT_EQ(a["loss"], 5.0);
  EXPECT_EQ(a["model"], "llama");
  EXPECT_EQ(a["strategy"], "ddp");
  EXPECT_EQ(a["parameters"], 12345);
  EXPECT_EQ(a["restarts"], 1);
  EXPECT_EQ(a["trouble"], "");
}

TEST_F(DashboardTest, ANewRunAndANewStepAreSeen) {
  EXPECT_EQ(answer("/api/curve", "run=a&field=loss")["curves"][0]["of"], 5);
  fs::create_directories(root_ / "more/c");
  write("more/c/run_args.json", "{}");
  make_run("a", 7);
  EXPECT_EQ(answer("/api/curve", "run=a&field=loss")["curves"][0]["of"], 7);
  EXPECT_EQ(answer("/api/runs")["runs"].size(), 2u) << "listed a moment ago";
  EXPECT_EQ(answer("/api/runs")["runs"][0]["step"], 7);
  clock_.now_ns += Dashboard::kListAgain_ns;
  EXPECT_EQ(answer("/api/runs")["runs"].size(), 3u);
  fs::remove_all(root_ / "a");
  clock_.now_ns += Dashboard::kListAgain_ns;
  EXPECT_EQ(answer("/api/runs")["runs"].size(), 2u);
  EXPECT_EQ(ask("/api/run", "run=a").status, 404u);
}

TEST_F(DashboardTest, CurvesOfSeveralRuns) {
  const json loss = answer("/api/curve", "run=b&run=a&field=loss");
  EXPECT_EQ(loss["unit"], "nats");
  EXPECT_EQ(loss["curves"][0]["run"], "b");
  EXPECT_EQ(loss["curves"][0]["x"], json({1, 2, 3}));
  EXPECT_EQ(loss["curves"][0]["y"], json({9, 8, 7}));
  EXPECT_EQ(loss["curves"][1]["x"].size(), 5u);
  const json tokens = answer("/api/curve", "run=b&field=loss&x=tokens&from=150&to=150");
  EXPECT_EQ(tokens["curves"][0]["x"], json({100, 200}));
  EXPECT_EQ(answer("/api/curve", "run=b&field=loss&x=seconds")["curves"][0]["x"], json({2, 4, 6}));
  EXPECT_EQ(answer("/api/curve", "run=a&field=loss&points=4")["curves"][0]["x"].size(), 4u);
  const json smooth = answer("/api/curve", "run=b&field=loss&smooth=0.5")["curves"][0]["y"];
  EXPECT_NEAR(smooth[1].get<double>(), (0.25 * 9 + 0.5 * 8) / 0.75, 1e-6);
  EXPECT_EQ(answer("/api/curve", "run=b&field=validation_loss")["curves"][0]["x"], json::array());
}

TEST_F(DashboardTest, OneRunWithWhatHappenedToIt) {
  const json run = answer("/api/run", "run=a");
  ASSERT_EQ(run["marks"].size(), 1u);
  const json& mark = run["marks"][0];
  EXPECT_EQ(mark["kind"], "restart");
  EXPECT_EQ(mark["step"], 3);
  EXPECT_EQ(mark["tokens"], 300);
  EXPECT_EQ(mark["seconds"], 6);
  EXPECT_THAT(mark["words"].get<std::string>(), HasSubstr("after rank 1 killed by SIGKILL"));
  EXPECT_EQ(run["events"].size(), 3u);
  EXPECT_EQ(run["counts"]["damaged_events"], 1);
  EXPECT_EQ(run["counts"]["steps"], 5);
  EXPECT_EQ(run["status"]["step"], 5);
  EXPECT_TRUE(run["totals"].is_null());
}

TEST_F(DashboardTest, PhasesAreThoseOfTheStretchElseThoseOfTheWholeRun) {
  EXPECT_EQ(answer("/api/phases", "run=a")["runs"][0]["seconds"], json::object());
  write("a/metrics.json", R"({"phases_s_per_step":{"forward":0.25,"validation":0.01}})");
  const json whole = answer("/api/phases", "run=a")["runs"][0];
  EXPECT_EQ(whole["of_stretch"], false);
  EXPECT_EQ(whole["seconds"]["validation"], 0.01);
  write("a/metrics.jsonl", step_line(1, 3, 0, R"(,"phases_s":{"forward":0.5,"update":1})") +
                               step_line(2, 3, 0, R"(,"phases_s":{"forward":1.5,"update":1})"));
  const json logged = answer("/api/phases", "run=a")["runs"][0];
  EXPECT_EQ(logged["of_stretch"], true);
  EXPECT_EQ(logged["seconds"], json({{"forward", 1.0}, {"update", 1.0}}));
  EXPECT_EQ(answer("/api/phases", "run=a&from=2")["runs"][0]["seconds"]["forward"], 1.5);
}

TEST_F(DashboardTest, ConfigsSideBySide) {
  const json config = answer("/api/config", "run=a&run=b");
  EXPECT_EQ(config["runs"], json({"a", "b"}));
  bool found = false;
  for (const json& row : config["rows"]) {
    EXPECT_EQ(row["differs"], row["key"] == "training.steps") << row;
    found = found ||
            row == json({{"key", "training.steps"}, {"values", {"5", "3"}}, {"differs", true}});
  }
  EXPECT_TRUE(found);
}

TEST_F(DashboardTest, AWordThatIsWrongIsNamed) {
  const auto error = [&](const char* query, unsigned status) {
    const StatusPage page = ask("/api/curve", query);
    EXPECT_EQ(page.status, status) << query;
    return json::parse(page.body)["error"].get<std::string>();
  };
  EXPECT_THAT(error("field=loss", 400), HasSubstr("runs must be given"));
  EXPECT_THAT(error("run=a&field=none", 400), HasSubstr("field must be the name of a curve"));
  EXPECT_THAT(error("run=a&field=loss&x=miles", 400),
              HasSubstr("x must be steps, tokens or seconds"));
  EXPECT_THAT(error("run=a&field=loss&from=x", 400), HasSubstr("from and to"));
  for (const char* points : {"3", "1e9", "-1", "nan", "4x"})
    EXPECT_THAT(error(text("run=a&field=loss&points=", points).c_str(), 400), HasSubstr("points"));
  for (const char* smooth : {"1", "-0.1", "nan"})
    EXPECT_THAT(error(text("run=a&field=loss&smooth=", smooth).c_str(), 400), HasSubstr("smooth"));
  std::string many = "field=loss";
  for (size_t i = 0; i <= Dashboard::kMaxRuns; ++i) many += "&run=a";
  EXPECT_THAT(error(many.c_str(), 400), HasSubstr("runs must be given"));
}

TEST_F(DashboardTest, NoNameLeadsOutOfTheResults) {
  fs::create_directories(dir_ / "outside");
  ASSERT_TRUE(publish_file(posix_file_system(), dir_ / "outside/run_args.json",
                           R"({"config":{"secret":"words"}})")
                  .ok());
  fs::create_symlink(dir_ / "outside", root_ / "link");
  for (const char* run : {"../outside", "..%2Foutside", "a/../../outside", "link", "%2e%2e/outside",
                          "a%00", "/etc", ""}) {
    for (const char* path : {"/api/run", "/api/config", "/api/phases", "/api/curve"}) {
      const StatusPage page = ask(path, text("field=loss&run=", run));
      EXPECT_EQ(page.status, 404u) << path << " " << run;
      EXPECT_THAT(page.body, Not(HasSubstr("words")));
    }
  }
  for (const char* path : {"/../results/a/metrics.jsonl", "/a/metrics.jsonl", "/api", "/api/../a",
                           "//", "/index.html", "/control.secret"})
    EXPECT_EQ(ask(path).status, 404u) << path;
  EXPECT_EQ(answer("/api/runs")["links_passed_over"], 1);
}

TEST_F(DashboardTest, AStatusEndpointHasTheDashboardOfItsRunBesideItsOwnPages) {
  const auto pages = run_pages(posix_file_system(), clock_, root_ / "a");
  EXPECT_THAT(pages({.path = "/"}).body, HasSubstr("href=\"runs/\""));
  EXPECT_EQ(json::parse(pages({.path = "/status.json"}).body)["step"], 5);
  EXPECT_THAT(pages({.path = "/runs/"}).body, HasSubstr("<script src=\"page.js\">"));
  EXPECT_EQ(pages({.path = "/runs/page.js"}).status, 200u);
  const json runs = json::parse(pages({.path = "/runs/api/runs"}).body)["runs"];
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["run"], "a");
  for (const char* path : {"/runs", "/runsapi/runs", "/api/runs", "/runs/status.json"})
    EXPECT_EQ(pages({.path = path}).status, 404u) << path;
}

// Whatever a run is called or says is data: JSON that parses, of bytes that are UTF-8.
TEST_F(DashboardTest, NamesAndTextsAreDataWhateverTheyHold) {
  const std::string name = "<script>alert(1)<\"&'>\xff";
  fs::create_directories(root_ / name);
  write(name + "/metrics.jsonl", step_line(1, 3, 0));
  write(name + "/run_args.json", R"({"config":{"a":{"b":"</script><img src=x>"}}})");
  write(name + "/events.jsonl",
        "{\"event\":\"<b>\",\"reason\":\"<i>\"}\n{\"event\":\"no UTF-8 \xfe\"}\n");
  const json all = answer("/api/runs");
  EXPECT_EQ(all["runs"].size(), 3u);
  const std::string query = "run=%3Cscript%3Ealert(1)%3C%22%26'%3E%ff&field=loss";
  EXPECT_EQ(answer("/api/curve", query)["curves"][0]["y"], json({3}));
  const json run = answer("/api/run", query);
  EXPECT_EQ(run["events"], json::parse(R"([{"event":"<b>","reason":"<i>"}])"));
  EXPECT_EQ(run["counts"]["damaged_events"], 1);
  EXPECT_EQ(answer("/api/config", query)["rows"][0]["values"], json({"</script><img src=x>"}));
  for (const PageFile& file : page_files())
    EXPECT_THAT(ask(file.path).body, Not(HasSubstr("alert(1)"))) << file.path;
}

TEST_F(DashboardTest, ThePageIsWholeAndLoadsNothingFromElsewhere) {
  const std::string token(64, 'a');
  const StatusPage page = ask("/", "token=" + token, token);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.scripts, launcher::net::Scripts::kFiles);
  EXPECT_THAT(page.body, HasSubstr("<script src=\"page.js?token=" + token + "\">"));
  EXPECT_THAT(ask("/").body, HasSubstr("<script src=\"page.js\">"));
  EXPECT_THAT(page.body, Not(HasSubstr("@QUERY@")));
  EXPECT_THAT(ask("/chart.js").body, HasSubstr("Chart.js v3"));
  // Each file that the page names is there, and no other host is named but in Chart.js' own licence
  // line and in the name of SVG's elements.
  size_t files = 0;
  for (const PageFile& file : page_files()) {
    if (file.path == "/") continue;
    EXPECT_THAT(page.body, HasSubstr(text('"', file.path.substr(1), "?token="))) << file.path;
    EXPECT_EQ(ask(file.path).body, file.contents);
    ++files;
    if (file.path == "/chart.js" || file.path == "/icon.svg") continue;
    for (const char* wrong : {"://", "innerHTML", "insertAdjacentHTML", "document.write", "eval("})
      EXPECT_THAT(std::string(file.contents), Not(HasSubstr(wrong))) << file.path;
  }
  EXPECT_EQ(files, 8u);
  EXPECT_THAT(page.body, Not(HasSubstr("://")));
}

}  // namespace
}  // namespace lockstep::cli
